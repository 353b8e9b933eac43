r"""Tool calls: the grammar of a text with calls, and the calls in a text with that grammar.

A model writes calls as its chat template does:

    <tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>      Hermes, Qwen, and by default
    [TOOL_CALLS][{"name": "f", "arguments": {…}}]                   Mistral
    {"name": "f", "parameters": {…}}                                Llama 3

https://huggingface.co/docs/transformers/chat_extras
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import Unprocessable
from ..types.structured_output import Tool
from .json_schemas import Schema, closed, json_rule
from .structural_tag import (
    Format,
    any_of,
    compact_json,
    literal,
    matching,
    sequence,
    tag,
    tags,
    text_until,
)

# Returns the Lark expression of a text, which may contain special tokens.
ToLark = Callable[[str], str]

DECODER = json.JSONDecoder()
# Text without a call, for models whose calls begin with `{`.
NO_CALL = r"([^{](.|\n)*)?"
# In OpenAI's API, a function without parameters has no arguments.
NO_ARGUMENTS = {"properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class ToolCall:
    """A call that a model has written; `arguments` is the JSON text of an object."""

    name: str
    arguments: str

    @property
    def as_json(self) -> dict[str, Any]:
        """The call as messages have it."""
        return {"type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class ToolSyntax:
    """How a family of models writes calls.

    Attributes:
        opening: the text before the calls; empty if a text that begins with `{` is a call.
        start: the text between the opening and the first call.
        separator: the text between two calls; empty if there can be only one.
        end: the text after the last call.
        key: the key of the arguments.
        required: whether a text has only calls, the last of which may be cut.
    """

    opening: str
    start: str
    separator: str
    end: str
    key: str = "arguments"
    required: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts around the calls."""
        return tuple(filter(None, (self.opening, self.end)))

    def call_id(self, given: str) -> str:
        """Return the id of a call in the form that the template accepts."""
        return given

    def content(self, text: str) -> str:
        """Return the part of a text before its calls."""
        if self.required:
            return ""
        if self.opening:
            return text.partition(self.opening)[0]
        return "" if text.startswith("{") else text

    def calls(self, text: str) -> Iterator[ToolCall]:
        """Yield the complete calls in a text."""
        head = re.compile(rf'\{{"name": "([^"]+)", "{self.key}": ')
        at = len(self.content(text))
        while found := head.search(text, at):
            try:
                _, at = DECODER.raw_decode(text, found.end())
            except (ValueError, RecursionError):
                return
            if not text.startswith("}", at):
                return
            yield ToolCall(found[1], text[found.end() : at])

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return the text of calls, beginning with the opening."""
        written = [f"{self._head(call.name)}{call.arguments}}}" for call in calls]
        return f"{self.opening}{self.start}{self.separator.join(written)}{self.end}"

    def rules(self, tools: Sequence[Tool], to_lark: ToLark, *, parallel: bool) -> list[str]:
        """Return the Lark rules of `calls`, the part of a text after the opening."""
        more = f"({to_lark(self.separator)} call)*" if parallel and self.separator else ""
        names = [f"call_{number}" for number in range(len(tools))]
        return [
            f"calls: {self._start} call {more} {to_lark(self.end)}",
            f"call: {' | '.join(names)}",
            *(f"{name}: {self._call(tool)}" for name, tool in zip(names, tools, strict=True)),
        ]

    def format(self, tools: Sequence[Tool], *, parallel: bool) -> Format:
        """Return the format of calls in a structural tag, beginning with the opening."""
        each = [
            tag(self._head(tool.function.name), compact_json(arguments_schema(tool)), "}")
            for tool in tools
        ]
        calls = tags(each, self.separator) if parallel and self.separator else any_of(*each)
        if not self.opening:
            return calls
        return tag(self.opening, sequence(self._start_format, calls), self.end)

    def _call(self, tool: Tool) -> str:
        arguments = json_rule(arguments_schema(tool), strict=bool(tool.function.strict))
        return f'{json.dumps(self._head(tool.function.name))} {arguments} "}}"'

    def _head(self, name: str) -> str:
        return f'{{"name": "{name}", "{self.key}": '

    @property
    def _start(self) -> str:
        """The Lark expression of `start`."""
        return json.dumps(self.start) if self.start else ""

    @property
    def _start_format(self) -> Format:
        return literal(self.start)


class MistralSyntax(ToolSyntax):
    """Mistral's syntax, whose templates accept only ids of nine letters and digits.

    Some of its vocabularies have the bracket after the opening only with a space.
    """

    def call_id(self, given: str) -> str:
        return re.sub(r"[^a-zA-Z0-9]", "", given)[-9:].rjust(9, "0")

    @property
    def _start(self) -> str:
        return r"/ ?\[/"

    @property
    def _start_format(self) -> Format:
        return matching(r" ?\[")


HERMES = ToolSyntax(
    opening="<tool_call>",
    start="\n",
    separator="\n</tool_call>\n<tool_call>\n",
    end="\n</tool_call>",
)
MISTRAL = MistralSyntax(opening="[TOOL_CALLS]", start="[", separator=", ", end="]")
LLAMA = ToolSyntax(opening="", start="", separator="", end="", key="parameters")
# The syntax of a family, by a text in its template; the first that occurs decides.
FAMILIES = {"<tool_call>": HERMES, "[TOOL_CALLS]": MISTRAL, '"parameters": ': LLAMA}


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of the arguments of a tool, whose objects are closed."""
    schema: dict[str, Any] = closed(
        {**(tool.function.parameters or NO_ARGUMENTS), "type": "object"}
    )
    return schema


def syntax_of(template: str) -> ToolSyntax:
    """Return the syntax of a chat template's calls; Hermes' syntax for an unknown template."""
    return next((syntax for mark, syntax in FAMILIES.items() if mark in template), HERMES)


@dataclass(frozen=True)
class ToolUse:
    """The calls that a text may have, or must have if they are required."""

    tools: Sequence[Tool]
    syntax: ToolSyntax
    required: bool
    parallel: bool

    def lark(self, to_lark: ToLark, answer: str | None) -> str:
        """Return the Lark grammar of a text.

        Args:
            to_lark: returns the Lark expression of a text, which may contain special tokens.
            answer: the Lark expression of a text without calls; None for any text.

        Raises:
            Unprocessable: the beginning of a text does not tell whether it is a call.
        """
        self._check_answer(answer)
        opening = to_lark(self.syntax.opening) if self.syntax.opening else ""
        if self.required:
            start = [f"start: {opening} calls"]
        elif answer is not None:
            start = [f"start: answer | {opening} calls"]
        else:
            start = _free_start(opening)
        rules = self.syntax.rules(self.tools, to_lark, parallel=self.parallel)
        last = [] if answer is None or self.required else [f"answer: {answer}"]
        return "\n".join([*start, *rules, *last])

    def format(self, answer: Format | None = None) -> Format:
        """Return the format of a text in a structural tag.

        Args:
            answer: the format of a text without calls; None for any text.

        Raises:
            Unprocessable: the beginning of a text does not tell whether it is a call.
        """
        self._check_answer(answer)
        calls = self.syntax.format(self.tools, parallel=self.parallel)
        if self.required:
            return calls
        if answer is not None:
            return any_of(answer, calls)
        if self.syntax.opening:
            return text_until(self.syntax.opening, calls)
        return any_of(matching(NO_CALL), calls)

    def relaxed(self, relax: Callable[[Sequence[Schema]], Sequence[Schema]]) -> ToolUse:
        """Return the calls with the schemas of tools that are not strict changed by a function."""
        lenient = [each for each in self.tools if not each.function.strict]
        schemas = iter(relax([arguments_schema(each) for each in lenient]) if lenient else ())
        tools = [
            tool if tool.function.strict else _with_arguments(tool, next(schemas))
            for tool in self.tools
        ]
        return replace(self, tools=tools)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The schemas of arguments."""
        return [arguments_schema(tool) for tool in self.tools]

    @property
    def strict_schemas(self) -> list[dict[str, Any]]:
        """The strict schemas of arguments, of which no keyword may be ignored."""
        return [arguments_schema(tool) for tool in self.tools if tool.function.strict]

    def _check_answer(self, answer: str | Format | None) -> None:
        if answer is not None and not (self.required or self.syntax.opening):
            raise Unprocessable(
                "This model writes tool calls as plain JSON, so a text cannot have both tools and a"
                " grammar; send one of them."
            )


def _with_arguments(tool: Tool, schema: Schema) -> Tool:
    function = tool.function.model_copy(update={"parameters": schema})
    return tool.model_copy(update={"function": function})


def _free_start(opening: str) -> list[str]:
    """Return the rules of any text that may end with calls."""
    if not opening:
        return ["start: TEXT | calls", f"TEXT: /{NO_CALL}/"]
    if token := re.fullmatch(r"<\[(\d+)\]>", opening):
        return [f"start: free | free {opening} calls", f"free: <[^{token[1]}]>*"]
    return [
        "start: TEXT | opening calls",
        f"opening[lazy]: TEXT {opening}",
        r"TEXT: /(.|\n)*/",
    ]
