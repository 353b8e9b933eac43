"""Wire formats: one file or package for each, with one class `Protocol`."""

from __future__ import annotations

from importlib import import_module

from handlers.protocols.base import BaseProtocol
from handlers.types.model_info import ModelInfo

# The first protocol that recognises a request parses it. Those that decide by a path or a content
# type come before those that read the body. Vertex AI and SageMaker have routes of their own for
# their bodies, so a path is unknown only after these.
ORDER = (
    "describe",
    "cohere",
    "openai",
    "text_embeddings_inference",
    "text_generation_inference",
    "vllm",
    "sagemaker",
    "open_inference",
    "kserve_v1",
    "unknown_path",
    "openai.without_path",
    "hugging_face",
    "legacy",
)


def create(model: ModelInfo) -> list[BaseProtocol]:
    """Return one instance of each protocol for a model, in the order in which they are tried."""
    return [import_module(f"{__name__}.{name}").Protocol(model) for name in ORDER]
