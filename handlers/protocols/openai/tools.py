"""Structured outputs of OpenAI's API: response formats, and tool calls in messages and chunks.

https://platform.openai.com/docs/guides/structured-outputs and /function-calling
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Self

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import TypedDict

from handlers.config.quoting import enumerate_names, shorten
from handlers.errors import BadRequest, Unprocessable
from handlers.protocols.openai.types import CallOfTool, CallPart, FunctionPart

ANY_OBJECT = {"type": "object"}
# What vLLM binds a text to, by the names of its `structured_outputs` and after `guided_`.
GUIDED = ("json", "regex", "choice", "grammar")
# How vLLM compiles, and a check that llguidance does in any case.
WITHOUT_EFFECT = {"backend", "disable_fallback"}


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


def structured_grammar(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the grammar of vLLM's `structured_outputs`; None without one.

    Raises:
        BadRequest: it has several, or none.
        Unprocessable: it has a setting that is not supported.
    """
    if given is None:
        return None
    found = {name: value for name, value in given.items() if value not in (None, False)}
    kinds = [name for name in (*GUIDED, "json_object") if name in found]
    others = found.keys() - {*kinds, *WITHOUT_EFFECT}
    if others:
        raise Unprocessable(
            f"{shorten(min(others))} of structured_outputs cannot be done by this server"
            "; leave it out."
        )
    if len(kinds) != 1:
        known = enumerate_names((*GUIDED, "json_object"))
        raise BadRequest(f"structured_outputs has {len(kinds)} of {known}; send one of them.")
    (kind,) = kinds
    return grammar_of(kind, found[kind])


def grammar_of(kind: str, value: Any) -> dict[str, Any]:
    """Return the grammar that one of vLLM's settings stands for."""
    if kind == "json_object":
        return {"type": "json", "value": ANY_OBJECT}
    return {"type": "lark" if kind == "grammar" else kind, "value": value}


def tool_calls(result: Mapping[str, Any]) -> list[CallOfTool]:
    """Return the tool calls of a result of the text-generation task, each with an id."""
    return [
        {"id": f"call_{uuid.uuid4().hex[:24]}", "type": call["type"], "function": call["function"]}
        for call in result.get("tool_calls", ())
    ]


def call_parts(calls: Sequence[CallOfTool]) -> list[CallPart]:
    """Return the parts of tool calls in a stream: of each its name, then its arguments."""
    parts: list[CallPart] = []
    for index, call in enumerate(calls):
        function = call["function"]
        named: FunctionPart = {"name": function["name"], "arguments": ""}
        parts += [
            {"index": index, "id": call["id"], "type": call["type"], "function": named},
            {"index": index, "function": {"arguments": function["arguments"]}},
        ]
    return parts
