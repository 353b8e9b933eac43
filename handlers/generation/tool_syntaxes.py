r"""How families of models write tool calls.

    <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>     Hermes, Qwen, and by default
    [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]                  Mistral
    [TOOL_CALLS]f[ARGS]{"a": 1}                                         Mistral since 2025
    {"name": "f", "parameters": {"a": 1}}                               Llama 3
    [f(a=1), g()]                                                       Llama 3.2 and 4, LFM2
    <function_calls>f(a=1)\ng()</function_calls>                        OLMo 3
    <|tools_prefix|>[{"f": {"a": 1}}]<|tools_suffix|>                   Apertus
    <tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>
                                                                        Qwen3-Coder, Qwen3.5
    <start_function_call>call:f{a:1}<end_function_call>                 Gemma
    <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>    Kimi
    <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}]<|END_ACTION|>
                                                                        Cohere

A syntax writes the grammar of its calls, for llguidance as Lark and for xgrammar as a structural
tag, and reads the calls of a text.

https://huggingface.co/docs/transformers/chat_extras
"""

from __future__ import annotations

import ast
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..types.structured_output import CUSTOM_INPUT, MAX_SCHEMA_DEPTH, Tool
from .json_schemas import (
    DEFINITIONS,
    Schema,
    closed,
    json_rule,
    references_in,
    rewritten,
    schema_at,
)
from .structural_tag import (
    EMPTY,
    Format,
    any_of,
    any_text,
    compact_json,
    literal,
    matching,
    sequence,
    tag,
    tags,
)

# Returns the Lark expression of a text, which may contain special tokens.
ToLark = Callable[[str], str]
# In OpenAI's API, a function without parameters has no arguments.
NO_ARGUMENTS = {"properties": {}, "additionalProperties": False}
# Where the schema of a property has the schema of all arguments.
ROOT_PLACE = ("$defs", "whole_arguments")
# The maximum number of calls of a structural tag without a text after the last one.
MAX_CALLS_WITHOUT_END = 4
DECODER = json.JSONDecoder()
NAME = r"([a-zA-Z0-9_.-]+)"
# What separates the arguments of a call in Python, or contains a comma.
ARGUMENT_MARKS = re.compile(r"\\.|[\"'\[\](){},]", re.DOTALL)
# The names of JSON, which are no literals of Python.
JSON_NAMES = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class ToolCall:
    """A call that a model has written.

    Attributes:
        arguments: the JSON text of an object.
        is_custom: whether it calls a custom tool, whose only argument is a text.
    """

    name: str
    arguments: str
    is_custom: bool = False

    @property
    def as_json(self) -> dict[str, Any]:
        """The call as messages have it."""
        if self.is_custom:
            text = json.loads(self.arguments).get(CUSTOM_INPUT, "")
            return {"type": "custom", "custom": {"name": self.name, "input": text}}
        return {"type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class ToolSyntax(ABC):
    """How a family of models writes calls.

    Attributes:
        opening: the text before the calls; empty if a text that begins with `begins` is a call.
        start: the text between the opening and the first call.
        separator: the text between two calls; None if there can be only one.
        end: the text after the last call.
        begins: the first character of a call without an opening.
        required: whether a text has only calls, the last of which may be cut.
    """

    opening: str = ""
    start: str = ""
    separator: str | None = None
    end: str = ""
    begins: str = "{"
    required: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts around the calls."""
        return tuple(filter(None, (self.opening, self.separator, self.end)))

    def call_id(self, given: str, name: str = "", number: int = 0) -> str:
        """Return the id of a call in the form that the template accepts.

        Args:
            given: its id; empty for none.
            name: the name of what it calls.
            number: the number of the call in the chat.
        """
        return given

    def content(self, text: str) -> str:
        """Return the part of a text before its calls."""
        if self.required:
            return ""
        if self.opening:
            return text.partition(self.opening)[0]
        return "" if text.startswith(self.begins) else text

    def calls(self, text: str, schemas: Mapping[str, Schema]) -> Iterator[ToolCall]:
        """Yield the complete calls in a text.

        Args:
            text: the text.
            schemas: the schemas of the arguments of the tools, by name.
        """
        begun = self.after_mark(text, len(self.content(text)), self.opening)
        opening = None if begun is None else self.after_mark(text, begun, self.start)
        while opening is not None and (found := self._read(text, opening, schemas)):
            call, at = found
            yield call
            opening = None if self.separator is None else self.after_mark(text, at, self.separator)

    @staticmethod
    def after_mark(text: str, at: int, mark: str) -> int | None:
        """Return where a text goes on after a mark, whose spaces may differ; None without it."""
        found = re.compile(loose(mark)).match(text, at)
        return found.end() if found else None

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return the text of calls, beginning with the opening."""
        written = (self.separator or "").join(self._write(call) for call in calls)
        return f"{self.opening}{self.start}{written}{self.end}"

    def rules(self, tools: Sequence[Tool], to_lark: ToLark, *, parallel: bool) -> list[str]:
        """Return the Lark rules of `calls`, the part of a text after the opening."""
        repeats = parallel and self.separator is not None
        more = f"({to_lark(self.separator or '')} call)*" if repeats else ""
        names = [f"call_{number}" for number in range(len(tools))]
        each = (self._rules(name, tool, to_lark) for name, tool in zip(names, tools, strict=True))
        return [
            f"calls: {self._start(to_lark)} call {more} {to_lark(self.end)}",
            f"call: {' | '.join(names)}",
            *(rule for rules in each for rule in rules),
        ]

    def format(self, tools: Sequence[Tool], *, parallel: bool) -> Format:
        """Return the format of calls in a structural tag, beginning with the opening."""
        each = [self._format(tool) for tool in tools]
        calls = any_of(*each)
        if parallel and self.separator is not None:
            # xgrammar repeats tags without end only before a text that ends them.
            calls = tags(each, self.separator) if self.end else self._some(calls)
        if not self.opening:
            return tag(self.start, calls, self.end) if self.start else calls
        first = [self._start_format] if self.start else []
        return tag(self.opening, sequence(*first, calls), self.end)

    def _some(self, call: Format) -> Format:
        """Return the format of a few calls."""
        more = any_of(sequence(literal(str(self.separator)), call), EMPTY)
        return sequence(call, *[more] * (MAX_CALLS_WITHOUT_END - 1))

    def _start(self, to_lark: ToLark) -> str:
        """Return the Lark expression of `start`."""
        return to_lark(self.start)

    @property
    def _start_format(self) -> Format:
        return literal(self.start)

    @abstractmethod
    def _read(
        self, text: str, at: int, schemas: Mapping[str, Schema]
    ) -> tuple[ToolCall, int] | None:
        """Return the next complete call in a text, and where it ends; None if there is none."""

    @abstractmethod
    def _search(self, text: str, at: int) -> EndSearch | None:
        """Return what looks for the end of a call that begins at a place of an unfinished text.

        None while the beginning of the call is not complete.
        """

    @abstractmethod
    def _write(self, call: ToolCall) -> str:
        """Return the text of one call."""

    @abstractmethod
    def _rules(self, name: str, tool: Tool, to_lark: ToLark) -> list[str]:
        """Return the Lark rules of a call of a tool, the first of which has a name."""

    @abstractmethod
    def _format(self, tool: Tool) -> Format:
        """Return the format of a call of a tool, which is a tag."""


class CallReader:
    """Reads the calls of a text that grows, without reading what it has read again.

    Args:
        syntax: how the calls are written.
        schemas: the schemas of the arguments of the tools, by name.

    Attributes:
        calls: the complete calls, as :meth:`ToolSyntax.calls` yields them.
    """

    def __init__(self, syntax: ToolSyntax, schemas: Mapping[str, Schema]) -> None:
        self.calls: list[ToolCall] = []
        self._syntax, self._schemas = syntax, schemas
        # Where the calls begin, and up to where their opening was looked for.
        self._begun: int | None = None
        self._searched = 0
        # Where the next call begins; None before the text between two calls is complete.
        self._at: int | None = None
        self._end_of_last = 0
        self._search: EndSearch | None = None
        self._has_failed = False

    def read(self, text: str) -> str:
        """Read what is new of a text, and return the part of the text before its calls."""
        while not self._has_failed and self._begins_call(text) and self._ends_call(text):
            pass
        if self._begun is None:
            return "" if self._syntax.required else text
        return text[: self._begun]

    def _begins_call(self, text: str) -> bool:
        """Return whether it is known where the next call begins."""
        syntax = self._syntax
        if self._at is not None:
            return True
        if self.calls:
            if syntax.separator is not None:
                self._at = syntax.after_mark(text, self._end_of_last, syntax.separator)
            return self._at is not None
        if self._begun is None:
            self._begun = self._opening(text)
        if self._begun is not None:
            opened = syntax.after_mark(text, self._begun, syntax.opening)
            self._at = None if opened is None else syntax.after_mark(text, opened, syntax.start)
        return self._at is not None

    def _opening(self, text: str) -> int | None:
        """Return where the calls begin; None before that."""
        syntax = self._syntax
        if syntax.required or not syntax.opening:
            return 0 if syntax.required or text.startswith(syntax.begins) else None
        found = text.find(syntax.opening, self._searched)
        self._searched = max(0, len(text) - len(syntax.opening) + 1)
        return None if found < 0 else found

    def _ends_call(self, text: str) -> bool:
        """Return whether the next call is complete, and read it then."""
        syntax, at = self._syntax, self._at or 0
        if self._search is None:
            self._search = syntax._search(text, at)
        if self._search is None or not self._search.is_found_in(text):
            return False
        found = syntax._read(text, at, self._schemas)
        if found is None:
            self._has_failed = self._search.is_certain
            return False
        call, self._end_of_last = found
        self.calls.append(call)
        self._at = self._search = None
        return True


class EndSearch(ABC):
    """Looks for the end of a call in a text that grows.

    Attributes:
        is_certain: whether what it finds is the end, so that a call which cannot be read up to
            there is none.
    """

    is_certain = False

    @abstractmethod
    def is_found_in(self, text: str) -> bool:
        """Return whether a call may end in a text; what was read before is not read again."""


class Mark(EndSearch):
    """Looks for a text with which a call ends.

    Args:
        mark: the text.
        at: where the call begins.
    """

    def __init__(self, mark: str, at: int) -> None:
        self._mark, self._place = mark, at

    def is_found_in(self, text: str) -> bool:
        found = text.find(self._mark, self._place)
        if found < 0:
            self._place = max(self._place, len(text) - len(self._mark) + 1)
            return False
        self._place = found + 1
        return True


class Brackets(EndSearch):
    """Looks for the place where brackets close that open at a place.

    A value that begins with no bracket may end anywhere.

    Args:
        at: the place.
        quotes: the texts around strings; a backslash escapes what follows in a string between
            single characters.
        after: the text after the brackets, whose spaces may differ.
    """

    def __init__(self, at: int, quotes: Sequence[str], after: str = "") -> None:
        self._at = self._place = at
        self._depth, self._quote = 0, ""
        self._pattern = re.compile("|".join([*map(re.escape, quotes), r"[\[\](){}]"]))
        self._longest = max(2, *map(len, quotes))
        # A quote of several characters may have another one in it, so it is waited for.
        self._beginnings = [each[:end] for each in quotes for end in range(len(each) - 1, 0, -1)]
        self._after = re.compile(loose(after))

    def is_found_in(self, text: str) -> bool:
        self.is_certain = text[self._at] in "([{"
        if not self.is_certain:
            return True
        end = self.end(text)
        return end is not None and self._after.match(text, end) is not None

    def end(self, text: str) -> int | None:
        """Return where the brackets close; None where they are open."""
        if self._place > self._at and not self._depth:
            return self._place
        while found := self._next(text):
            self._place = found.end()
            if self._quote:
                if found[0] == self._quote:
                    self._quote = ""
            elif found[0] in "([{":
                self._depth += 1
            elif found[0] in ")]}":
                self._depth -= 1
                if not self._depth:
                    return self._place
            else:
                self._quote = found[0]
        # The end of the text may be the beginning of a quote, or of an escape.
        self._place = max(self._place, len(text) - self._longest + 1)
        return None

    def _next(self, text: str) -> re.Match[str] | None:
        """Return the next bracket, quote or escape of a text."""
        held = (len(each) for each in self._beginnings if text.endswith(each))
        pattern, end = self._pattern, len(text) - next(held, 0)
        if self._quote:
            escape = r"|\\." if len(self._quote) == 1 else ""
            pattern = re.compile(re.escape(self._quote) + escape, re.DOTALL)
        return pattern.search(text, self._place, end)


@dataclass(frozen=True)
class JsonCalls(ToolSyntax):
    """Calls with a JSON object as arguments.

    Attributes:
        before: the text before the name.
        between: the text between the name and the arguments.
        after: the text after the arguments.
        call_id_mark: the text before the id of a call after its name; empty without ids.
        call_id_pattern: the pattern of such an id, and `call_id_example` one of these.
    """

    before: str = '{"name": "'
    between: str = '", "arguments": '
    after: str = "}"
    call_id_mark: str = ""
    call_id_pattern: str = "[a-zA-Z0-9]{9}"
    call_id_example: str = "000000000"

    @property
    def marks(self) -> tuple[str, ...]:
        own = (self.before, self.between, self.after, self.call_id_mark)
        return (*super().marks, *(mark for mark in own if "[" in mark or "<" in mark))

    def _read(
        self, text: str, at: int, schemas: Mapping[str, Schema]
    ) -> tuple[ToolCall, int] | None:
        found = self._head.match(text, at)
        if found is None:
            return None
        try:
            _, end = DECODER.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            return None
        last = self.after_mark(text, end, self.after)
        return None if last is None else (ToolCall(found[1], text[found.end() : end]), last)

    def _search(self, text: str, at: int) -> EndSearch | None:
        found = self._head.match(text, at)
        if found is None or found.end() == len(text):
            return None
        return Brackets(found.end(), ['"'], self.after)

    @property
    def _head(self) -> re.Pattern[str]:
        """Finds what comes before the arguments of a call."""
        mark = rf"(?:{re.escape(self.call_id_mark)}\w+)?" if self.call_id_mark else ""
        return re.compile(f"{loose(self.before)}{NAME}{mark}{loose(self.between)}")

    def _write(self, call: ToolCall) -> str:
        mark = f"{self.call_id_mark}{self.call_id_example}" if self.call_id_mark else ""
        return f"{self.before}{call.name}{mark}{self.between}{call.arguments}{self.after}"

    def _rules(self, name: str, tool: Tool, to_lark: ToLark) -> list[str]:
        arguments = json_rule(arguments_schema(tool), strict=bool(tool.function.strict))
        head = f"{self.before}{tool.function.name}"
        if self.call_id_mark:
            call_id = f"{to_lark(head + self.call_id_mark)} /{self.call_id_pattern}/"
            return [f"{name}: {call_id} {to_lark(self.between)} {arguments} {to_lark(self.after)}"]
        return [f"{name}: {to_lark(head + self.between)} {arguments} {to_lark(self.after)}"]

    def _format(self, tool: Tool) -> Format:
        arguments = compact_json(arguments_schema(tool))
        head = f"{self.before}{tool.function.name}"
        if self.call_id_mark:
            call_id = matching(self.call_id_pattern)
            content = sequence(call_id, literal(self.between), arguments)
            return tag(head + self.call_id_mark, content, self.after)
        return tag(head + self.between, arguments, self.after)


@dataclass(frozen=True)
class MistralCalls(JsonCalls):
    """Mistral's syntaxes, whose templates accept only ids of nine letters and digits.

    Some of its vocabularies have the bracket after the opening only with a space.
    """

    def call_id(self, given: str, name: str = "", number: int = 0) -> str:
        own = given or str(number)
        return re.sub(r"[^a-zA-Z0-9]", "", own)[-9:].rjust(9, "0")

    def _start(self, to_lark: ToLark) -> str:
        return r"/ ?\[/" if self.start else ""

    @property
    def _start_format(self) -> Format:
        return matching(r" ?\[")


@dataclass(frozen=True)
class KimiCalls(JsonCalls):
    """Kimi's syntax, whose template writes the id of a call in the place of its name."""

    def call_id(self, given: str, name: str = "", number: int = 0) -> str:
        return f"functions.{name}:{number}" if name else given


@dataclass(frozen=True)
class CohereCalls(JsonCalls):
    """Cohere's syntax, whose calls begin with a number.

    Attributes:
        before_name: the text between the number and the name.
    """

    before: str = '{"tool_call_id": "'
    before_name: str = '", "tool_name": "'
    between: str = '", "parameters": '
    call_id_pattern: str = "[0-9]{1,3}"

    @property
    def _head(self) -> re.Pattern[str]:
        number = f"{loose(self.before)}[0-9]+{loose(self.before_name)}"
        return re.compile(f"{number}{NAME}{loose(self.between)}")

    def _write(self, call: ToolCall) -> str:
        return f"{self.before}0{self.before_name}{call.name}{self.between}{call.arguments}}}"

    def _rules(self, name: str, tool: Tool, to_lark: ToLark) -> list[str]:
        arguments = json_rule(arguments_schema(tool), strict=bool(tool.function.strict))
        called = to_lark(f"{self.before_name}{tool.function.name}{self.between}")
        head = f"{to_lark(self.before)} /{self.call_id_pattern}/ {called}"
        return [f"{name}: {head} {arguments} {to_lark(self.after)}"]

    def _format(self, tool: Tool) -> Format:
        called = literal(f"{self.before_name}{tool.function.name}{self.between}")
        arguments = compact_json(arguments_schema(tool))
        content = sequence(matching(self.call_id_pattern), called, arguments)
        return tag(self.before, content, self.after)


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
        comma, properties = "" if first else loose(self.comma), _properties(schema)
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
        for number, (key, own) in enumerate(_properties(schema).items()):
            pair = f"{name}_{number}"
            head = to_lark(f"{self.before_key}{key}{self.before_value}")
            closing = f"{self.quote if _is_text(own) else ''}{self.after_value}"
            value, more = self._value_rules(pair, own, to_lark, closing, strict)
            rules += [f"{pair}: {head} {value}", *more]
            pairs.append((pair, key in required))
        body = f"{name}_pairs: {_lark_list(pairs, to_lark(self.comma))}"
        head = to_lark(f"{self.before}{tool.function.name}{self.between}")
        return [f"{name}: {head} {name}_pairs {to_lark(self.after)}", body, *rules]

    def _value_rules(
        self, pair: str, own: Schema, to_lark: ToLark, closing: str, strict: bool
    ) -> tuple[str, list[str]]:
        """Return the Lark expression of a value and what ends it, and its rules."""
        if not _is_text(own):
            value = json_rule(own, strict=strict)
            return f"{value} {to_lark(closing)}", []
        opening = to_lark(self.quote) if self.quote else ""
        if choices := _choices(own):
            return f"{opening} ({' | '.join(map(to_lark, choices))}) {to_lark(closing)}", []
        return f"{opening} {pair}_text", _text_until(f"{pair}_text", to_lark(closing))

    def _format(self, tool: Tool) -> Format:
        schema = arguments_schema(tool)
        pairs = {key: self._pair_format(key, own) for key, own in _properties(schema).items()}
        content = _list_format(pairs, schema.get("required", ()), self.comma)
        return tag(f"{self.before}{tool.function.name}{self.between}", content, self.after)

    def _pair_format(self, key: str, own: Schema) -> Format:
        head = f"{self.before_key}{key}{self.before_value}"
        if not _is_text(own):
            return tag(head, compact_json(own), self.after_value)
        closing = f"{self.quote}{self.after_value}"
        choices = _choices(own)
        value = any_of(*map(literal, choices)) if choices else any_text()
        return tag(f"{head}{self.quote}", value, closing)


@dataclass(frozen=True)
class PythonCalls(ToolSyntax):
    """Calls as a list of Python: names with keyword arguments, whose values are literals."""

    begins: str = "["

    def _read(
        self, text: str, at: int, schemas: Mapping[str, Schema]
    ) -> tuple[ToolCall, int] | None:
        found = self._head.match(text, at)
        end = found and Brackets(found.end() - 1, "\"'").end(text)
        if not found or not end:
            return None
        try:
            arguments = _keyword_arguments(text[found.end() : end - 1])
            written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None
        return ToolCall(found[1], written), end

    @property
    def _head(self) -> re.Pattern[str]:
        """Finds what comes before the arguments of a call."""
        return re.compile(rf"\s*{NAME}\(")

    def _search(self, text: str, at: int) -> EndSearch | None:
        found = self._head.match(text, at)
        return None if found is None else Brackets(found.end() - 1, "\"'")

    def _write(self, call: ToolCall) -> str:
        arguments = json.loads(call.arguments)
        pairs = (f"{key}={_python_literal(value)}" for key, value in arguments.items())
        return f"{call.name}({', '.join(pairs)})"

    def _rules(self, name: str, tool: Tool, to_lark: ToLark) -> list[str]:
        schema, strict = arguments_schema(tool), bool(tool.function.strict)
        required, pairs = schema.get("required", ()), list[tuple[str, bool]]()
        rules: list[str] = []
        for number, (key, own) in enumerate(_properties(schema).items()):
            pairs.append((f"{name}_{number}", key in required))
            value = json_rule(own, strict=strict)
            if _kinds(own) == ["boolean"]:
                value = '("True" | "False")'
            rules.append(f"{name}_{number}: {json.dumps(f'{key}=')} {value}")
        body = f"{name}_pairs: {_lark_list(pairs, json.dumps(', '))}"
        head = json.dumps(f"{tool.function.name}(")
        return [f'{name}: {head} {name}_pairs ")"', body, *rules]

    def _format(self, tool: Tool) -> Format:
        schema = arguments_schema(tool)
        pairs = {
            key: sequence(
                literal(f"{key}="),
                any_of(literal("True"), literal("False"))
                if _kinds(own) == ["boolean"]
                else compact_json(own),
            )
            for key, own in _properties(schema).items()
        }
        content = _list_format(pairs, schema.get("required", ()), ", ")
        return tag(f"{tool.function.name}(", content, ")")


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of the arguments of a tool, whose objects are closed."""
    schema: dict[str, Any] = closed(
        {**(tool.function.parameters or NO_ARGUMENTS), "type": "object"}
    )
    return schema


def _properties(schema: Schema) -> Mapping[str, Schema]:
    """Return the schemas of the properties of an object, each with what it refers to."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties", {}), Mapping):
        return {}
    return {
        key: _with_definitions(own, schema) for key, own in schema.get("properties", {}).items()
    }


def _with_definitions(own: Schema, root: Mapping[str, Any]) -> Schema:
    """Return a schema with what it refers to; a reference becomes the schema that it names."""
    for _ in range(MAX_SCHEMA_DEPTH):
        if not (isinstance(own, Mapping) and isinstance(own.get("$ref"), str)):
            break
        found = schema_at(root, own["$ref"])
        if not isinstance(found, Mapping):
            break
        own = found
    if not isinstance(own, Mapping):
        return own
    definitions = {name: root[name] for name in DEFINITIONS if name in root}
    if not any(map(_is_outside, references_in({**own, **definitions}))):
        return {**own, **definitions}
    # What is not among the definitions is found in a copy of the whole schema.
    known = root.get(ROOT_PLACE[0])
    root_copy = {**(known if isinstance(known, Mapping) else {}), ROOT_PLACE[1]: root}
    moved = rewritten({**own, **definitions, ROOT_PLACE[0]: root_copy}, _with_moved_reference)
    return cast("Schema", moved)


def _is_outside(reference: str) -> bool:
    """Return whether a reference is to a part of the same schema, but to no definition."""
    return reference.startswith("#") and not reference.startswith(
        tuple(f"#/{name}/" for name in DEFINITIONS)
    )


def _with_moved_reference(_: str, schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not _is_outside(reference):
        return schema
    return {**schema, "$ref": f"#/{'/'.join(ROOT_PLACE)}{reference[1:]}"}


def _kinds(schema: Any) -> Sequence[Any]:
    """Return the types of a schema, or the types of its alternatives."""
    if not isinstance(schema, Mapping):
        return ()
    alternatives = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(alternatives, list):
        return [kind for each in alternatives for kind in _kinds(each)]
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind]


def _is_text(schema: Any) -> bool:
    """Return whether values of a schema are texts, which have no quotes."""
    return "string" in _kinds(schema) or bool(_choices(schema))


def _as_value(text: str, schema: Any) -> Any:
    """Return the value that a text stands for."""
    if _is_text(schema) and not (text == "null" and "null" in _kinds(schema)):
        return text
    return _from_json(text)


def _choices(schema: Any) -> Sequence[str]:
    """Return the texts that a schema names; none for other schemas."""
    if not isinstance(schema, Mapping):
        return ()
    given = [schema["const"]] if "const" in schema else schema.get("enum", ())
    texts = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    return texts if texts and len(texts) == len(given) else ()


def _text_until(name: str, closing: str) -> list[str]:
    """Return the Lark rules of a text and what ends it."""
    if token := re.match(r"<\[(\d+)\]>", closing):
        return [f"{name}: <[^{token[1]}]>* {closing}"]
    return [f"{name}[lazy]: {name.upper()} {closing}", rf"{name.upper()}: /(.|\n)*/"]


def _lark_list(pairs: Sequence[tuple[str, bool]], comma: str) -> str:
    """Return the Lark expression of rules one after another, of which some may be left out."""
    if not comma:
        return " ".join(name if required else f"{name}?" for name, required in pairs) or '""'
    first = next((at for at, (_, required) in enumerate(pairs) if required), None)
    if first is None:
        starts = range(len(pairs))
        lists = (" ".join([pairs[at][0], *_following(pairs[at + 1 :], comma)]) for at in starts)
        return " | ".join([*lists, '""'])
    before = (f"({name} {comma})?" for name, _ in pairs[:first])
    return " ".join([*before, pairs[first][0], *_following(pairs[first + 1 :], comma)])


def _following(pairs: Sequence[tuple[str, bool]], comma: str) -> list[str]:
    return [f"({comma} {name}){'' if required else '?'}" for name, required in pairs]


def _list_format(pairs: Mapping[str, Format], required: Sequence[str], comma: str) -> Format:
    """Return the format of pairs one after another, of which some may be left out."""
    names = list(pairs)
    if not comma:
        parts = [pairs[name] if name in required else any_of(pairs[name], EMPTY) for name in names]
        return sequence(*parts) if parts else EMPTY
    first = next((at for at, name in enumerate(names) if name in required), None)
    if first is None:
        lists = [_list_from(pairs, names[at:], (), comma) for at in range(len(names))]
        return any_of(*lists, EMPTY)
    before = [any_of(sequence(pairs[name], literal(comma)), EMPTY) for name in names[:first]]
    return sequence(*before, _list_from(pairs, names[first:], required, comma))


def _list_from(
    pairs: Mapping[str, Format], names: Sequence[str], required: Sequence[str], comma: str
) -> Format:
    """Return the format of pairs of which the first is always there."""
    following = [(name, sequence(literal(comma), pairs[name])) for name in names[1:]]
    rest = [each if name in required else any_of(each, EMPTY) for name, each in following]
    return sequence(pairs[names[0]], *rest)


def loose(mark: str) -> str:
    """Return the regular expression of a mark around which, and in which, spaces may differ."""
    parts = [re.escape(part) for part in mark.split()]
    return r"\s*".join(["", *parts, ""])


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


def _keyword_arguments(text: str) -> dict[str, Any]:
    """Return the keyword arguments of a call in Python, whose values are literals.

    Their names may be none of Python's, such as `from`.

    Raises:
        ValueError: others are among them.
        SyntaxError: a value is no Python.
    """
    arguments: dict[str, Any] = {}
    for part in _separated(text):
        name, mark, value = part.partition("=")
        if not mark:
            raise ValueError("a call has an argument without a name")
        arguments[name.strip()] = _literal_in(value.strip())
    return arguments


def _separated(text: str) -> list[str]:
    """Return the parts of a text between commas that are in no brackets and in no string."""
    parts, start, depth, quote = list[str](), 0, 0, ""
    for found in ARGUMENT_MARKS.finditer(text):
        mark = found[0]
        if quote or mark in "\"'":
            quote = {"": mark, mark: ""}.get(quote, quote)
        elif mark == "," and not depth:
            parts.append(text[start : found.start()])
            start = found.end()
        elif mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
    return [part for part in (*parts, text[start:]) if part.strip()]


def _literal_in(text: str) -> Any:
    """Return the value of a literal of JSON or Python, whose strings differ in their escapes."""
    try:
        return json.loads(text)
    except ValueError:
        return _literal(ast.parse(text, mode="eval").body)


def _literal(node: ast.AST) -> Any:
    """Return the value of a literal of Python or JSON."""
    if isinstance(node, ast.Name) and node.id in JSON_NAMES:
        return JSON_NAMES[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(each) for each in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_literal(key or ast.Constant(None)): _literal(value) for key, value in pairs}
    value = ast.literal_eval(node)
    if isinstance(value, str):
        # Python has two letters for the two halves of a pair of surrogates.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _python_literal(value: Any) -> str:
    return str(value) if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


HERMES = JsonCalls(
    opening="<tool_call>",
    start="\n",
    separator="\n</tool_call>\n<tool_call>\n",
    end="\n</tool_call>",
)
LLAMA = JsonCalls(between='", "parameters": ')
MISTRAL = MistralCalls(opening="[TOOL_CALLS]", start="[", separator=", ", end="]")
# By the names of the YAML's `tool_call_parser`, which are vLLM's where it has one.
TOOL_SYNTAXES: Mapping[str, ToolSyntax] = {
    "openai": JsonCalls(
        opening="<|channel|>commentary to=functions.",
        before="",
        between=" <|constrain|>json<|message|>",
        after="",
    ),
    "qwen3_coder": PairCalls(
        opening="<tool_call>",
        start="\n",
        separator="\n</tool_call>\n<tool_call>\n",
        end="\n</tool_call>",
        before="<function=",
        between=">\n",
        before_key="<parameter=",
        before_value=">\n",
        after_value="\n</parameter>\n",
        after="</function>",
    ),
    "seed_oss": PairCalls(
        opening="<seed:tool_call>",
        start="\n",
        separator="\n</seed:tool_call>\n<seed:tool_call>\n",
        end="\n</seed:tool_call>",
        before="<function=",
        between=">\n",
        before_key="<parameter=",
        before_value=">",
        after_value="</parameter>\n",
        after="</function>",
    ),
    "glm45": PairCalls(
        opening="<tool_call>",
        separator="</tool_call>\n<tool_call>",
        end="</tool_call>",
        between="\n",
        before_key="<arg_key>",
        before_value="</arg_key>\n<arg_value>",
        after_value="</arg_value>\n",
    ),
    "minimax_m2": PairCalls(
        opening="<minimax:tool_call>",
        start="\n",
        separator="",
        end="</minimax:tool_call>",
        before='<invoke name="',
        between='">\n',
        before_key='<parameter name="',
        before_value='">',
        after_value="</parameter>\n",
        after="</invoke>\n",
    ),
    "hunyuan_a13b": JsonCalls(
        opening="<tool_calls>", start="[", separator=", ", end="]</tool_calls>"
    ),
    "minimax": JsonCalls(opening="<tool_calls>", start="\n", separator="\n", end="\n</tool_calls>"),
    "kimi_k2": KimiCalls(
        opening="<|tool_calls_section_begin|>",
        separator="",
        end="<|tool_calls_section_end|>",
        before="<|tool_call_begin|>functions.",
        between="<|tool_call_argument_begin|>",
        after="<|tool_call_end|>",
        call_id_mark=":",
        call_id_pattern="[0-9]{1,3}",
        call_id_example="0",
    ),
    "cohere": CohereCalls(
        opening="<|START_ACTION|>",
        start="[\n    ",
        separator=",\n    ",
        end="\n]<|END_ACTION|>",
    ),
    "nemotron": JsonCalls(opening="<TOOLCALL>", start="[", separator=", ", end="]</TOOLCALL>"),
    "functools": JsonCalls(opening="functools", start="[", separator=", ", end="]"),
    "gemma4": PairCalls(
        opening="<|tool_call>",
        separator="<tool_call|><|tool_call>",
        end="<tool_call|>",
        before="call:",
        between="{",
        before_value=":",
        quote='<|"|>',
        comma=",",
        after="}",
    ),
    "functiongemma": PairCalls(
        opening="<start_function_call>",
        separator="<end_function_call><start_function_call>",
        end="<end_function_call>",
        before="call:",
        between="{",
        before_value=":",
        quote="<escape>",
        comma=",",
        after="}",
    ),
    "lfm2": PythonCalls(
        opening="<|tool_call_start|>", start="[", separator=", ", end="]<|tool_call_end|>"
    ),
    "olmo3": PythonCalls(opening="<function_calls>", separator="\n", end="</function_calls>"),
    "apertus": JsonCalls(
        opening="<|tools_prefix|>",
        start="[",
        separator=", ",
        end="]<|tools_suffix|>",
        before='{"',
        between='": ',
    ),
    "hermes": HERMES,
    "mistral_call_id": MistralCalls(
        opening="[TOOL_CALLS]",
        separator="[TOOL_CALLS]",
        before="",
        between="[ARGS]",
        after="",
        call_id_mark="[CALL_ID]",
    ),
    "mistral_args": MistralCalls(
        opening="[TOOL_CALLS]", separator="[TOOL_CALLS]", before="", between="[ARGS]", after=""
    ),
    "mistral": MISTRAL,
    "deepseek_v3": JsonCalls(
        opening="<｜tool▁calls▁begin｜>",
        separator="\n",
        end="<｜tool▁calls▁end｜>",
        before="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        between="\n```json\n",
        after="\n```<｜tool▁call▁end｜>",
    ),
    "deepseek_v31": JsonCalls(
        opening="<｜tool▁calls▁begin｜>",
        separator="",
        end="<｜tool▁calls▁end｜>",
        before="<｜tool▁call▁begin｜>",
        between="<｜tool▁sep｜>",
        after="<｜tool▁call▁end｜>",
    ),
    "phi4_mini_json": JsonCalls(
        opening="<|tool_call|>", start="[", separator=", ", end="]<|/tool_call|>"
    ),
    "granite": JsonCalls(opening="<|tool_call|>", start="[", separator=", ", end="]"),
    "pythonic": PythonCalls(start="[", separator=", ", end="]"),
    "llama3_json": LLAMA,
}
# The texts of a template that show a syntax, all of which it has; the first one decides.
TEMPLATE_MARKS: Mapping[str, Sequence[str]] = {
    "openai": ("<|channel|>commentary",),
    "qwen3_coder": ("<tool_call>", "<function="),
    "seed_oss": ("<seed:tool_call>",),
    "glm45": ("<tool_call>", "<arg_key>"),
    "minimax_m2": ("<minimax:tool_call>",),
    "hunyuan_a13b": ("<tool_calls>[",),
    "minimax": ("<tool_calls>\\n",),
    "kimi_k2": ("<|tool_calls_section_begin|>",),
    "cohere": ("<|START_ACTION|>",),
    "nemotron": ("<TOOLCALL>",),
    "functools": ("functools[",),
    "gemma4": ("<|tool_call>",),
    "functiongemma": ("<start_function_call>",),
    "lfm2": ("<|tool_call_start|>",),
    "olmo3": ("<function_calls>",),
    "apertus": ("<|tools_prefix|>",),
    "hermes": ("<tool_call>",),
    "mistral_call_id": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    "mistral_args": ("[TOOL_CALLS]", "[ARGS]"),
    "mistral": ("[TOOL_CALLS]",),
    "deepseek_v3": ("<｜tool▁call▁begin｜>", "```json"),
    "deepseek_v31": ("<｜tool▁call▁begin｜>",),
    "phi4_mini_json": ("<|tool|>", "<|/tool|>"),
    "granite": ("<|tool_call|>",),
    "pythonic": ("[func_name1(",),
    "llama3_json": ("""'"parameters": '""",),
}
# Other texts of templates that show a syntax, whose calls they do not write themselves.
OTHER_MARKS: Mapping[str, str] = {"lfm2": "List of tools: "}


def find_tool_syntax(template: str, name: str | None = None) -> ToolSyntax:
    """Return the syntax of a chat template's calls; Hermes' syntax for an unknown template.

    Args:
        template: the chat template, with the response schema of the tokenizer if it has one.
        name: the name of a syntax, instead of that which the template shows.
    """
    if name is not None:
        return TOOL_SYNTAXES[name]
    for known, marks in TEMPLATE_MARKS.items():
        other = OTHER_MARKS.get(known)
        if all(mark in template for mark in marks) or (other and other in template):
            return TOOL_SYNTAXES[known]
    return TOOL_SYNTAXES["hermes"]
