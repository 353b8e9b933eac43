"""Keys of several servers that say how texts are cut: `truncate_prompt_tokens` of vLLM, a number of
tokens; `truncate` of Cohere and NVIDIA's NIM, a side. And `instruction`, which rerankers read.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from ..errors import BadRequest, Unprocessable
from ..types.model_info import ModelInfo

KEY = "truncate_prompt_tokens"
# The value for all tokens that the model takes.
ALL_TOKENS = -1
PromptTokens = Annotated[int, Field(ge=ALL_TOKENS)]
# The side at which a text is cut, or that it is refused.
Truncation = Literal["NONE", "START", "END"]
SIDES: Mapping[Truncation, Mapping[str, Any]] = {
    "NONE": {"truncate": False},
    "START": {"truncate": True, "truncation_direction": "left"},
    "END": {"truncate": True, "truncation_direction": "right"},
}


def truncation_of(value: bool | Truncation | None) -> Mapping[str, Any]:
    """Return the parameters of a task for a value of `truncate`; none for None."""
    if value is None:
        return {}
    return {"truncate": value} if isinstance(value, bool) else SIDES[value]


def check_prompt_tokens(tokens: int, limit: int | None) -> None:
    """Refuse a number of tokens that leaves no text, and more than the model takes.

    Args:
        limit: the number of tokens that the model takes; None for any number.

    Raises:
        BadRequest: it is one of these.
    """
    if tokens == 0:
        raise BadRequest(f"{KEY} is 0, which leaves no text; send at least 1, or leave it out.")
    if limit and tokens > limit:
        raise BadRequest(
            f"{KEY} is {tokens:,}, and this model takes {limit:,} tokens; send at most {limit:,}"
            f", or {ALL_TOKENS} for all that it takes."
        )


def instruction_parameters(instruction: str | None, model: ModelInfo) -> dict[str, Any]:
    """Return the parameter with which a task reads an instruction.

    Args:
        instruction: the value of the key; None where a body does not have it.

    Raises:
        Unprocessable: the mode reads none.
    """
    if instruction is None:
        return {}
    if "instruction" not in model.parameters:
        raise Unprocessable(
            "instruction cannot be done by this server for this model; leave it out."
        )
    return {"instruction": instruction}


def truncation_parameters(
    tokens: int | None, model: ModelInfo, given: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the parameters with which a task cuts texts to a number of tokens.

    Args:
        tokens: the value of the key; None where a body does not have it.
        given: the parameters that the body's other keys for long texts become.

    Raises:
        BadRequest: the number leaves no text, or is more than the model takes, or another key says
            that texts are not cut.
        Unprocessable: the mode does not cut texts at this length.
    """
    if tokens is None:
        return {}
    if given.get("truncate") is False:
        raise BadRequest(
            f"{KEY} cuts texts that are too long, and another key says that they are refused; send"
            " one of them."
        )
    limit, known = model.limits.max_length, model.parameters
    check_prompt_tokens(tokens, limit)
    if "truncate" not in known and not model.limits.truncation:
        raise Unprocessable(
            f"{KEY} cannot be done by this server for this model, which refuses texts that are too"
            " long; leave it out."
        )
    given = {"truncate": True} if "truncate" in known else {}
    if tokens in (ALL_TOKENS, limit):
        return given
    if "max_length" not in known:
        raise Unprocessable(
            f"{KEY} cannot be done by this server for this model; send {ALL_TOKENS}, for what the"
            " model takes, or leave it out."
        )
    return {**given, "max_length": tokens}
