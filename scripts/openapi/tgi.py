"""The responses of the paths of text-generation-inference and text-embeddings-inference.

https://huggingface.github.io/text-generation-inference and /text-embeddings-inference
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from handlers.schemas.request import TextToken


class GenerateDetails(TypedDict):
    """Why a text ended, and what it took; `prefill` is empty."""

    finish_reason: Literal["length", "eos_token", "stop_sequence"]
    generated_tokens: int
    input_length: int
    seed: int | None
    prefill: list[dict[str, Any]]
    tokens: list[TextToken]
    top_tokens: NotRequired[list[list[TextToken]]]


class GenerateResult(TypedDict):
    """The new text, and its details if requested."""

    generated_text: str
    details: NotRequired[GenerateDetails]


class InputToken(TypedDict):
    """A token of a text and its characters, from `start` to `stop`; both are 0 for an added one."""

    id: int
    text: str
    special: bool
    start: int
    stop: int


class SparseValue(TypedDict):
    """An entry of the vocabulary by its number, and its weight."""

    index: int
    value: float


class ServedInfo(TypedDict):
    """A model and its limits; null for no limit. The last keys are those of embedding servers."""

    model_id: str
    model_dtype: str
    model_pipeline_tag: str
    max_input_length: int | None
    max_input_tokens: int | None
    max_total_tokens: int | None
    max_client_batch_size: int
    version: str
    served_model_name: NotRequired[str]
    model_type: NotRequired[dict[str, Any]]
    max_batch_tokens: NotRequired[int | None]
    auto_truncate: NotRequired[bool]


class GenerationError(TypedDict):
    """An error of text-generation-inference, or with a capital of text-embeddings-inference."""

    error: str
    error_type: Literal[
        "validation", "overloaded", "generation", "Validation", "Overloaded", "Backend"
    ]
