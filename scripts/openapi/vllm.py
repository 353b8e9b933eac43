"""The responses of vLLM's paths to a tokenizer.

https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html#tokenizer-api
"""

from __future__ import annotations

from typing_extensions import TypedDict


class TokenizedPrompt(TypedDict):
    """The tokens of a prompt; `max_model_len` is null for no limit."""

    tokens: list[int]
    count: int
    max_model_len: int | None


class DetokenizedPrompt(TypedDict):
    """The text of tokens."""

    prompt: str
