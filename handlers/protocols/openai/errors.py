"""Errors as OpenAI has them: `{"error": {"message": …, "type": …, "param": …, "code": …}}`.

Clients recognise a text that is too long by its status, its code and a part of its message. They
send less of it then, or ask another model.

https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

from ...config.messages import enumerate_names, quote
from ...errors import BadRequest, NotFound, RequestError, TextTooLong
from ...types.model_info import Limits
from .types import OpenAIError, OpenAIProblem

# A sentence about a key begins with its name, or with the place in its value: `messages[1].role`.
FIRST_NAME = re.compile(r"(?:parameters: )?((\w+)(?:\.\w+|\[\d+\])*)")
CONTEXT_CODE: Literal["context_length_exceeded"] = "context_length_exceeded"


class ModelNotFound(NotFound):
    """The name is not the name of a model or an adapter."""

    def __init__(self, requested: str, known: Sequence[str]) -> None:
        names = enumerate_names(known)
        super().__init__(f"There is no model {quote(requested)} here; there are {names}.")


class KeyNeedsAnother(BadRequest):
    """A key is set that has an effect only with another one, which is not.

    Args:
        param: the key.
        other: the other key, with the value that it should have.
    """

    def __init__(self, param: str, other: str) -> None:
        super().__init__(
            f"{param} has an effect only with {other}; set it too, or leave {param} out."
        )


class ContextLengthExceeded(BadRequest):
    """A text, or it and the new one that it asks for, has more tokens than the model takes.

    Args:
        param: the key of the text in the body; None where it is not known.
    """

    def __init__(self, error: TextTooLong, limits: Limits, param: str | None) -> None:
        self.param = param
        # LangChain looks for the code in the message.
        super().__init__(
            f"This model's maximum context length is {_context(limits)} ({CONTEXT_CODE}); {error}"
        )


def key_names(path: str, inputs_key: str) -> dict[str, str]:
    """Return the keys of the bodies of an endpoint by the names that tasks have for them."""
    most = "max_output_tokens" if inputs_key == "input" else "max_tokens"
    is_chat = path != "completions"
    tokens = "top_logprobs" if is_chat else "logprobs"
    return {
        "inputs": inputs_key,
        "messages": inputs_key,
        "max_new_tokens": most,
        "min_new_tokens": "min_tokens",
        "max_length": "truncate_prompt_tokens",
        "truncate": "truncate_prompt_tokens",
        "num_return_sequences": "n",
        "top_n_tokens": tokens,
        "decoder_input_details": "prompt_logprobs" if is_chat else "logprobs with echo",
    }


def to_openai_error(error: RequestError, limits: Limits, param: str | None = None) -> RequestError:
    """Return the error of OpenAI for an error of a model.

    Args:
        param: the key of the inputs in the body; None where it is not known.
    """
    if isinstance(error, TextTooLong):
        return ContextLengthExceeded(error, limits, param)
    return error


def error_body(error: RequestError, keys: Collection[str] = ()) -> OpenAIError:
    """Return the body of an error.

    Args:
        keys: the keys of the body of the request; none where it has no known path.
    """
    problem: OpenAIProblem = {
        "message": str(error),
        "type": "server_error" if error.status >= 500 else "invalid_request_error",
        "param": _param(str(error), keys),
        "code": None,
    }
    if isinstance(error, ModelNotFound):
        problem |= {"param": "model", "code": "model_not_found"}
    if isinstance(error, ContextLengthExceeded):
        problem |= {"param": error.param, "code": CONTEXT_CODE}
    return {"error": problem}


def _param(sentence: str, keys: Collection[str]) -> str | None:
    """Return the key that a sentence is about; None where it is about none of these."""
    found = FIRST_NAME.match(sentence)
    return found[1] if found and found[2] in keys else None


def _context(limits: Limits) -> str:
    tokens = limits.max_total_tokens or limits.max_length
    return f"{tokens} tokens" if tokens else f"{limits.max_characters} characters"
