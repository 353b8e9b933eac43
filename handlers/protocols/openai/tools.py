"""Structured outputs of OpenAI's API: response formats, and tool calls in messages and chunks.

https://platform.openai.com/docs/guides/structured-outputs and /function-calling
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Self

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import TypedDict

ANY_OBJECT = {"type": "object"}


class NamedSchema(TypedDict):
    """A JSON schema; unless it is strict, keywords that are not supported are ignored."""

    name: NotRequired[str | None]
    schema: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


class ResponseFormat(BaseModel):
    """What a text must be; `json` and `regex` are text-generation-inference's, with a `value`.

    Hugging Face's client sends the schema of `json_schema` as the `value` of `json_object`.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Literal["text", "json_object", "json_schema", "json", "regex"]
    json_schema: NamedSchema | None = None
    value: Any = None

    @model_validator(mode="after")
    def _has_schema(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("has no json_schema; add it")
        return self

    @property
    def grammar(self) -> dict[str, Any] | None:
        """The grammar of a text in this format; None if the text is free."""
        if self.type == "text":
            return None
        if self.type in ("json", "regex"):
            return {"type": self.type, "value": self.value}
        if self.type == "json_object" and self.value is not None:
            return {"type": "json", "value": self.value}
        named = self.json_schema or {}
        schema = named.get("schema")
        value = ANY_OBJECT if schema is None else schema
        return {"type": "json", "value": value, "strict": bool(named.get("strict"))}


def tool_calls(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of a result of the text-generation task, each with an id."""
    return [
        {"id": f"call_{uuid.uuid4().hex[:24]}", **call} for call in result.get("tool_calls", ())
    ]


def call_deltas(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the deltas of tool calls: of each its name, then its arguments."""
    return [
        {"tool_calls": [part]}
        for index, call in enumerate(calls)
        for part in (
            {"index": index, **call, "function": {**call["function"], "arguments": ""}},
            {"index": index, "function": {"arguments": call["function"]["arguments"]}},
        )
    ]
