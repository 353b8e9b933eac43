"""Tool calls whose arguments are pairs of a key and a value: texts as they are, others as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...types.structured_output import Tool
from ..json_schemas import Schema, json_rule
from ..structural_tag import (
    Format,
    any_of,
    any_text,
    compact_json,
    literal,
    matching,
    sequence,
    tag,
)
from .argument_lists import NAME_PATTERN, lark_list, list_format, other_name
from .argument_values import ValueForms, check_texts, text_expression, text_format, value_forms
from .arguments import ArgumentsShape, arguments_schema, schemas_by_name, shapes_of
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
        at, known = found.end(), schemas_by_name(schemas.get(found[1], True))
        arguments: dict[str, Any] = {}
        while pair := self._read_pair(text, at, *known, first=not arguments):
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
        self, text: str, at: int, properties: Mapping[str, Schema], others: Schema, *, first: bool
    ) -> tuple[str, Any, int] | None:
        """Return a key, its value and where they end; None if there is no complete pair."""
        comma = "" if first else loose(self.comma)
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
        value = _as_value(text[at:end], properties.get(found[1], others))
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
        strict, shapes = bool(tool.function.strict), _checked_shapes(tool)
        names = [f"{name}_pairs_{number}" for number in range(len(shapes))]
        each = zip(names, shapes, strict=True)
        rules = [
            rule for own, shape in each for rule in self._shape_rules(own, shape, to_lark, strict)
        ]
        head = to_lark(f"{self.before}{tool.function.name}{self.between}")
        return [f"{name}: {head} ({' | '.join(names)}) {to_lark(self.after)}", *rules]

    def _shape_rules(
        self, name: str, shape: ArgumentsShape, to_lark: ToLark, strict: bool
    ) -> list[str]:
        """Return the Lark rules of arguments, the first of which has a name."""
        rules, pairs = list[str](), list[tuple[str, bool]]()
        before, after = to_lark(self.before_key), to_lark(self.before_value)
        for number, (key, own, kept) in enumerate(shape.pairs):
            pair = f"{name}_{number}"
            head = to_lark(f"{self.before_key}{key}{self.before_value}")
            rules += self._pair_rules(pair, head, own, to_lark, strict)
            pairs.append((pair, kept))
        other = None
        if shape.others is not False:
            other, key = f"{name}_other", f"{name.upper()}_NAME"
            rules += self._pair_rules(
                other, f"{before} {key} {after}", shape.others, to_lark, strict
            )
            rules.append(f"{key}: {other_name(shape.properties)}")
        return [f"{name}: {lark_list(pairs, to_lark(self.comma), other)}", *rules]

    def _pair_rules(
        self, pair: str, head: str, own: Schema, to_lark: ToLark, strict: bool
    ) -> list[str]:
        """Return the Lark rules of a pair whose key is written, the first of which has a name."""
        forms, opening = value_forms(own), to_lark(self.quote) if self.quote else ""
        closing, last = to_lark(f"{self.quote}{self.after_value}"), to_lark(self.after_value)
        ways, rules = list[str](), list[str]()
        if forms.has_any_text:
            ways.append(f"{opening} {pair}_text")
            rules += _text_until(f"{pair}_text", closing)
        else:
            for number, each in enumerate(forms.texts):
                rules += _matching_text(f"{pair}_text_{number}", text_expression(each), closing)
                ways.append(f"{opening} {pair}_text_{number}")
        if choices := [] if forms.has_any_text else forms.choices:
            ways.append(f"{opening} ({' | '.join(map(to_lark, choices))}) {closing}")
        # Without quotes, any text may be JSON too.
        if forms.others is not None and (self.quote or not forms.has_any_text):
            ways.append(f"{json_rule(forms.others, strict=strict)} {last}")
        return [f"{pair}: {head} ({' | '.join(ways)})", *rules]

    def _format(self, tool: Tool) -> Format:
        shapes = [self._shape_format(each) for each in _checked_shapes(tool)]
        content = shapes[0] if len(shapes) == 1 else any_of(*shapes)
        return tag(f"{self.before}{tool.function.name}{self.between}", content, self.after)

    def _shape_format(self, shape: ArgumentsShape) -> Format:
        pairs = {
            key: self._pair_format(f"{self.before_key}{key}{self.before_value}", own)
            for key, own in shape.properties.items()
        }
        other = None
        if shape.others is not False:
            pair = self._pair_format(self.before_value, shape.others)
            key = matching(NAME_PATTERN)
            other = (
                sequence(literal(self.before_key), key, pair)
                if self.before_key
                else (sequence(key, pair))
            )
        return list_format(pairs, shape.required, self.comma, other)

    def _pair_format(self, head: str, own: Schema) -> Format:
        forms = value_forms(own)
        texts = self._texts_format(forms)
        ways = (
            [tag(f"{head}{self.quote}", texts, f"{self.quote}{self.after_value}")] if texts else []
        )
        if forms.others is not None and (self.quote or not forms.has_any_text):
            ways.append(tag(head, compact_json(forms.others), self.after_value))
        return ways[0] if len(ways) == 1 else any_of(*ways)

    def _texts_format(self, forms: ValueForms) -> Format | None:
        """Return the format of the texts among values; None for no texts."""
        if forms.has_any_text:
            return any_text()
        texts = [text_format([each]) for each in forms.texts]
        ways = [*filter(None, texts), *map(literal, forms.choices)]
        return any_of(*ways) if ways else None


def _checked_shapes(tool: Tool) -> list[ArgumentsShape]:
    """Return the shapes of the arguments of a tool.

    Raises:
        Unprocessable: the tool is strict, and has a pattern that cannot be enforced.
    """
    shapes = shapes_of(arguments_schema(tool))
    if tool.function.strict:
        for shape in shapes:
            for each in (*shape.properties.values(), shape.others):
                check_texts(value_forms(each).texts)
    return shapes


def _as_value(text: str, schema: Schema) -> Any:
    """Return the value that a text stands for."""
    forms = value_forms(schema)
    if not forms.texts:
        return text if text in forms.choices else _from_json(text)
    if forms.others is True:
        return _from_json(text)
    value = _from_json(text) if forms.others is not None else text
    # Texts that are numbers are not told from numbers.
    kinds = {type(None): "null", dict: "object", list: "array"}
    return value if forms.allows(kinds.get(type(value), "")) else text


def _matching_text(name: str, expression: str | None, closing: str) -> list[str]:
    """Return the Lark rules of a text that matches an expression, and what ends it."""
    lazy = "" if closing.startswith("<[") else "[lazy]"
    return [f"{name}{lazy}: {name.upper()} {closing}", f"{name.upper()}: {expression}"]


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
