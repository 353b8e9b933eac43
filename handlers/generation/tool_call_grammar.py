"""The grammar of a text that may call tools, or must call some."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import Unprocessable
from ..types.structured_output import Tool
from .json_schemas import Schema
from .structural_tag import Format, any_of, matching, text_until
from .tool_syntaxes.arguments import arguments_schema
from .tool_syntaxes.base import ToLark, ToolSyntax

# The Lark expression of any text.
ANY_TEXT = r"/(.|\n)*/"


@dataclass(frozen=True)
class ToolCallGrammar:
    """The calls that a text may have, or must have if they are required."""

    tools: Sequence[Tool]
    syntax: ToolSyntax
    required: bool
    parallel: bool

    def lark(self, to_lark: ToLark, answer: str | None, excluded: str = "") -> str:
        """Return the Lark grammar of a text.

        Args:
            to_lark: returns the Lark expression of a text, which may contain special tokens.
            answer: the Lark expression of a text without calls; None for any text.
            excluded: the text with which any text does not begin; empty for none.

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
            start = _free_start(opening, self.syntax.begins, excluded)
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
        return any_of(matching(_no_call(self.syntax.begins)), calls)

    def relaxed(self, relax: Callable[[Sequence[Schema]], Sequence[Schema]]) -> ToolCallGrammar:
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


def _free_start(opening: str, begins: str, excluded: str) -> list[str]:
    """Return the rules of any text that may end with calls, and does not begin with another."""
    without = f" & ~({json.dumps(excluded)} {ANY_TEXT})" if excluded else ""
    if not opening:
        return ["start: TEXT | calls", f"TEXT: /{_no_call(begins)}/{without}"]
    if token := re.match(r"<\[(\d+)\]>", opening):
        return [f"start: free | free {opening} calls", f"free: <[^{token[1]}]>*"]
    return [
        "start: TEXT | opening calls",
        f"opening[lazy]: TEXT {opening}",
        f"TEXT: {ANY_TEXT}{without}",
    ]


def _no_call(begins: str) -> str:
    """Return the pattern of a text without a call, for models whose calls have no opening.

    After thoughts, spaces before a call are no part of it.
    """
    return rf"\s*([^\s{re.escape(begins)}](.|\n)*)?"
