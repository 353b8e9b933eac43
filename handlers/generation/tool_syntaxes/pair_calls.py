"""Tool calls whose arguments are pairs of a key and a value: texts as they are, others as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...types.structured_output import Tool
from ..json_schemas import Schema, json_rule
from ..structural_tag import Format, any_of, any_text, compact_json, literal, tag
from .arguments import (
    arguments_schema,
    choices_of,
    is_text,
    lark_list,
    list_format,
    properties_of,
    types_of,
)
from .base import DECODER, NAME, Brackets, EndSearch, Mark, ToLark, ToolCall, ToolSyntax, loose


@dataclass(frozen=True)
class PairCalls(ToolSyntax):
    """Calls whose arguments are pairs of a key and a value: texts as they are, others as JSON.

    Attributes:
        before: the text before the name.
        between: the text between the name and the first pair.
        before_key: the text before a key.
        before_value: the text between a key and its value.
        quote: the text before and after a value that is a text; empty for none.
        after_value: the text after a value.
        comma: the text between two pairs.
        after: the text after the last pair.
    """

    before: str = ""
    between: str = ""
    before_key: str = ""
    before_value: str = ""
    quote: str = ""
    after_value: str = ""
    comma: str = ""
    after: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        own = (self.quote, self.before_key, self.before_value, self.after_value)
        return (*super().marks, *(mark for mark in own if "<" in mark))

    def _read(
        self, text: str, at: int, schemas: Mapping[str, Schema]
    ) -> tuple[ToolCall, int] | None:
        found = re.compile(f"{loose(self.before)}{NAME}{loose(self.between)}").match(text, at)
        if found is None:
            return None
        at, schema = found.end(), schemas.get(found[1], True)
        arguments: dict[str, Any] = {}
        while pair := self._read_pair(text, at, schema, first=not arguments):
            key, arguments[key], at = pair[0], pair[1], pair[2]
        # A call without an end is complete where the calls end.
        last = self.after_mark(text, at, self.after)
        if last is None or (not self.after and self.after_mark(text, at, self.end) is None):
            return None
        return ToolCall(found[1], json.dumps(arguments, ensure_ascii=False)), last

    def _search(self, text: str, at: int) -> EndSearch | None:
        if self.after_value:
            return Mark((self.after or self.end).split()[-1], at)
        found = re.compile(f"{loose(self.before)}{NAME}{re.escape(self.between)}").match(text, at)
        return None if found is None else Brackets(found.end() - 1, [self.quote, '"'])

    def _read_pair(
        self, text: str, at: int, schema: Schema, *, first: bool
    ) -> tuple[str, Any, int] | None:
        """Return a key, its value and where they end; None if there is no complete pair."""
        comma, properties = "" if first else loose(self.comma), properties_of(schema)
        # A property may have any name, such as `$filter`.
        names = "|".join([*map(re.escape, sorted(properties, key=len, reverse=True)), NAME])
        head = f"{comma}{loose(self.before_key)}({names}){re.escape(self.before_value.rstrip())}"
        found = re.compile(head).match(text, at)
        if found is None:
            return None
        at = found.end()
        if not self.after_value:
            value = _read_value(text, at, self.quote)
            return value and (found[1], *value)
        at += self.before_value.endswith("\n") and text.startswith("\n", at)
        closing = self.after_value.rstrip()
        end = text.find(closing, at)
        if end < 0:
            return None
        value = _as_value(text[at:end], properties.get(found[1]))
        return found[1], value, end + len(closing)

    def _write(self, call: ToolCall) -> str:
        pairs = [
            f"{self.before_key}{key}{self.before_value}{self._value(value)}{self.after_value}"
            for key, value in json.loads(call.arguments).items()
        ]
        return f"{self.before}{call.name}{self.between}{self.comma.join(pairs)}{self.after}"

    def _value(self, value: Any) -> str:
        if isinstance(value, str):
            return f"{self.quote}{value}{self.quote}"
        return json.dumps(value, ensure_ascii=False)

    def _rules(self, name: str, tool: Tool, to_lark: ToLark) -> list[str]:
        schema, strict = arguments_schema(tool), bool(tool.function.strict)
        required, pairs = schema.get("required", ()), list[tuple[str, bool]]()
        rules: list[str] = []
        for number, (key, own) in enumerate(properties_of(schema).items()):
            pair = f"{name}_{number}"
            head = to_lark(f"{self.before_key}{key}{self.before_value}")
            closing = f"{self.quote if is_text(own) else ''}{self.after_value}"
            value, more = self._value_rules(pair, own, to_lark, closing, strict)
            rules += [f"{pair}: {head} {value}", *more]
            pairs.append((pair, key in required))
        body = f"{name}_pairs: {lark_list(pairs, to_lark(self.comma))}"
        head = to_lark(f"{self.before}{tool.function.name}{self.between}")
        return [f"{name}: {head} {name}_pairs {to_lark(self.after)}", body, *rules]

    def _value_rules(
        self, pair: str, own: Schema, to_lark: ToLark, closing: str, strict: bool
    ) -> tuple[str, list[str]]:
        """Return the Lark expression of a value and what ends it, and its rules."""
        if not is_text(own):
            value = json_rule(own, strict=strict)
            return f"{value} {to_lark(closing)}", []
        opening = to_lark(self.quote) if self.quote else ""
        if choices := choices_of(own):
            return f"{opening} ({' | '.join(map(to_lark, choices))}) {to_lark(closing)}", []
        return f"{opening} {pair}_text", _text_until(f"{pair}_text", to_lark(closing))

    def _format(self, tool: Tool) -> Format:
        schema = arguments_schema(tool)
        pairs = {key: self._pair_format(key, own) for key, own in properties_of(schema).items()}
        content = list_format(pairs, schema.get("required", ()), self.comma)
        return tag(f"{self.before}{tool.function.name}{self.between}", content, self.after)

    def _pair_format(self, key: str, own: Schema) -> Format:
        head = f"{self.before_key}{key}{self.before_value}"
        if not is_text(own):
            return tag(head, compact_json(own), self.after_value)
        closing = f"{self.quote}{self.after_value}"
        choices = choices_of(own)
        value = any_of(*map(literal, choices)) if choices else any_text()
        return tag(f"{head}{self.quote}", value, closing)


def _as_value(text: str, schema: Any) -> Any:
    """Return the value that a text stands for."""
    if is_text(schema) and not (text == "null" and "null" in types_of(schema)):
        return text
    return _from_json(text)


def _text_until(name: str, closing: str) -> list[str]:
    """Return the Lark rules of a text and what ends it."""
    if token := re.match(r"<\[(\d+)\]>", closing):
        return [f"{name}: <[^{token[1]}]>* {closing}"]
    return [f"{name}[lazy]: {name.upper()} {closing}", rf"{name.upper()}: /(.|\n)*/"]


def _from_json(text: str) -> Any:
    """Return the value of a JSON text; a text that is no JSON is itself the value."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_value(text: str, at: int, quote: str) -> tuple[Any, int] | None:
    """Return a value without a text that ends it: JSON, with texts in a model's own quotes."""
    try:
        return _Values(text, quote).read(at)
    except (ValueError, RecursionError, IndexError):
        return None


class _Values:
    """Reads JSON with texts in a model's own quotes, and with keys that may have none."""

    def __init__(self, text: str, quote: str) -> None:
        self._text, self._quote = text, quote

    def read(self, at: int) -> tuple[Any, int]:
        """Return the value at a place, and where it ends.

        Raises:
            ValueError: there is no complete value.
        """
        at = self._skip(at)
        if self._text.startswith(self._quote, at):
            end = self._text.index(self._quote, at + len(self._quote))
            return self._text[at + len(self._quote) : end], end + len(self._quote)
        if self._text[at] == "{":
            return self._object(at + 1)
        if self._text[at] == "[":
            return self._array(at + 1)
        return DECODER.raw_decode(self._text, at)

    def _object(self, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while self._text[at := self._skip(at)] != "}":
            if self._text[at] == '"':
                key, at = DECODER.raw_decode(self._text, at)
            else:
                end = self._text.index(":", at)
                key, at = self._text[at:end].strip(), end
            found[str(key)], at = self.read(self._text.index(":", at) + 1)
            at = self._comma(at)
        return found, at + 1

    def _array(self, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while self._text[at := self._skip(at)] != "]":
            value, at = self.read(at)
            found.append(value)
            at = self._comma(at)
        return found, at + 1

    def _comma(self, at: int) -> int:
        at = self._skip(at)
        return at + 1 if self._text[at] == "," else at

    def _skip(self, at: int) -> int:
        while self._text[at].isspace():
            at += 1
        return at
