"""Log probabilities in the shapes of OpenAI's endpoints.

https://platform.openai.com/docs/api-reference/chat/object and /completions/object
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any

from handlers.protocols.openai.types import (
    ChatLogprobs,
    LikelyToken,
    ScoredToken,
    TextLogprobs,
)
from handlers.types.request import GeneratedToken, TextToken

# A token of a text, and the most likely ones in its place.
Scored = tuple[TextToken, Sequence[TextToken]]


def scored(tokens: Sequence[GeneratedToken]) -> list[Scored]:
    """Return the tokens of a part of a stream."""
    return [(token.as_json(), token.top_as_json()) for token in tokens]


def scored_in(details: Mapping[str, Any]) -> list[Scored] | None:
    """Return the tokens in the details of a result; None where they are not requested."""
    if "tokens" not in details:
        return None
    return list(zip(details["tokens"], details.get("top_tokens", repeat(())), strict=False))


def chat_logprobs(tokens: Sequence[Scored]) -> ChatLogprobs:
    """Return `logprobs` of a choice of `chat/completions`."""
    content: list[ScoredToken] = [
        {**_entry(token), "top_logprobs": [_entry(each) for each in top]} for token, top in tokens
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokens: Sequence[Scored], offset: int) -> TextLogprobs:
    """Return `logprobs` of a choice of `completions`.

    Args:
        tokens: the tokens.
        offset: where their text begins in the text of the choice, in characters.
    """
    texts = [token["text"] for token, _ in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [token["logprob"] for token, _ in tokens],
        "top_logprobs": [_by_text([*top, token]) for token, top in tokens],
        "text_offset": list(accumulate(map(len, texts), initial=offset))[:-1],
    }


def _entry(token: TextToken) -> LikelyToken:
    """Return a token with its bytes, which of a part of a character are not those of its text."""
    raw = token.get("bytes") or list(token["text"].encode(errors="replace"))
    return {"token": token["text"], "logprob": token["logprob"], "bytes": raw}


def _by_text(tokens: Sequence[TextToken]) -> dict[str, float]:
    """Return log probabilities by text; of tokens with the same text that of the first."""
    return {token["text"]: token["logprob"] for token in reversed(tokens)}
