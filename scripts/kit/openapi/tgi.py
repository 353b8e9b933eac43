"""The responses of text-generation-inference's paths.

https://huggingface.github.io/text-generation-inference
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


class ServedInfo(TypedDict):
    """A model and its limits; null for no limit."""

    model_id: str
    model_dtype: str
    model_pipeline_tag: str
    max_input_length: int | None
    max_input_tokens: int | None
    max_total_tokens: int | None
    max_client_batch_size: int
    version: str


class GenerationError(TypedDict):
    """An error in the shape of text-generation-inference."""

    error: str
    error_type: Literal["validation", "overloaded", "generation"]
