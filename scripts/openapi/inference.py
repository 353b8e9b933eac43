"""The types of the Open Inference Protocol.

https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from handlers.protocols.open_inference.tensors import Datatype


class Tensor(TypedDict):
    """Values in row-major order, nested by the shape or flat; texts are BYTES."""

    name: str
    shape: list[int]
    datatype: Datatype
    parameters: NotRequired[dict[str, Any]]
    data: list[Any]


class RequestedOutput(TypedDict):
    """A requested output."""

    name: str
    parameters: NotRequired[dict[str, Any]]


class InferenceRequest(TypedDict):
    """Input tensors, and the requested outputs; by default all."""

    id: NotRequired[str]
    parameters: NotRequired[dict[str, Any]]
    inputs: list[Tensor]
    outputs: NotRequired[list[RequestedOutput]]


class InferenceResponse(TypedDict):
    """Output tensors; `id` is the request's."""

    model_name: str
    model_version: NotRequired[str]
    id: NotRequired[str]
    parameters: NotRequired[dict[str, Any]]
    outputs: list[Tensor]
