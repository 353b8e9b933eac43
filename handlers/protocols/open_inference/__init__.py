"""The Open Inference Protocol V2 of KServe, Triton and MLServer: tensors in, a tensor out."""

from handlers.protocols.open_inference.protocol import Protocol

__all__ = ["Protocol"]
