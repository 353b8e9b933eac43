"""The base of the syntaxes of tool calls, and what reads the calls of a text that grows."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...types.structured_output import CUSTOM_INPUT, Tool
from ..json_schemas import Schema
from ..structural_tag import EMPTY, Format, any_of, literal, sequence, tag, tags

# Returns the Lark expression of a text, which may contain special tokens.
ToLark = Callable[[str], str]
# The maximum number of calls of a structural tag without a text after the last one.
MAX_CALLS_WITHOUT_END = 4
DECODER = json.JSONDecoder()
NAME = r"([a-zA-Z0-9_.-]+)"


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


def loose(mark: str) -> str:
    """Return the regular expression of a mark around which, and in which, spaces may differ."""
    parts = [re.escape(part) for part in mark.split()]
    return r"\s*".join(["", *parts, ""])
