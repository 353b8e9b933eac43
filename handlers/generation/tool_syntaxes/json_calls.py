"""Tool calls whose arguments are a JSON object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...types.structured_output import Tool
from ..json_schemas import Schema, json_rule
from ..structural_tag import Format, compact_json, literal, matching, sequence, tag
from .arguments import arguments_schema
from .base import DECODER, NAME, Brackets, EndSearch, ToLark, ToolCall, ToolSyntax, loose


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
