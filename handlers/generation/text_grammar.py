"""What a text is bound to, for each of the compilers: llguidance, and xgrammar in an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handlers.errors import Unprocessable
from handlers.generation.compact_json import compact_json
from handlers.generation.grammar import (
    CompiledGrammar,
    GrammarCompiler,
    grammar_content,
    lark_text,
    to_lark,
)
from handlers.generation.structural_tag import Format, matching
from handlers.generation.tool_calls import ToolUse
from handlers.schemas.structured_output import Grammar


@dataclass(frozen=True)
class TextGrammar:
    """What a text must match: a grammar, calls of tools, or one of both.

    It is compiled when its text begins, by the compiler of what generates the text.

    Attributes:
        answer: the grammar of a text without calls; None where it is free.
        calls: the calls that it may have; None where there are none.
        compiler: llguidance's, for this model.
    """

    answer: Grammar | None
    calls: ToolUse | None
    compiler: GrammarCompiler = field(repr=False)

    @property
    def lark(self) -> str:
        """The grammar in llguidance's variant of Lark.

        Raises:
            RequestError: it cannot be written so, or this model cannot have grammars.
        """
        if self.answer and self.answer.type == "lark":
            return self._own_lark(self.answer)
        answer = to_lark(self.answer) if self.answer else None
        return self.calls.lark(self.compiler.literal, answer) if self.calls else f"start: {answer}"

    @property
    def is_lark(self) -> bool:
        """Whether it is given in Lark, which xgrammar does not read."""
        return self.answer is not None and self.answer.type == "lark"

    def _own_lark(self, answer: Grammar) -> str:
        if self.calls:
            raise Unprocessable("A grammar in Lark and tools exclude one another; leave one out.")
        return lark_text(answer.value)

    def compile(self) -> CompiledGrammar:
        """Return the grammar as llguidance compiles it.

        Raises:
            RequestError: it cannot be compiled, or this model cannot have grammars.
        """
        return self.compiler.compile(self.lark)

    @property
    def format(self) -> Format:
        """The format of its structural tag, for xgrammar.

        Raises:
            RequestError: it cannot be written as one.
        """
        answers = [_format(grammar_content(self.answer))] if self.answer else []
        return self.calls.format(*answers) if self.calls else answers[0]

    @property
    def patterns(self) -> Sequence[str]:
        """The regular expressions in it, outside of schemas."""
        content = grammar_content(self.answer) if self.answer else None
        return [content] if isinstance(content, str) else []

    @property
    def schemas(self) -> Sequence[Mapping[str, Any] | bool]:
        """The JSON schemas in it."""
        return [*self._answer_schemas, *(self.calls.schemas if self.calls else ())]

    @property
    def strict_schemas(self) -> Sequence[Mapping[str, Any] | bool]:
        """The JSON schemas in it of which no keyword may be ignored."""
        answers = self._answer_schemas if self.answer and self.answer.strict else []
        return [*answers, *(self.calls.strict_schemas if self.calls else ())]

    @property
    def _answer_schemas(self) -> Sequence[Mapping[str, Any] | bool]:
        content = grammar_content(self.answer) if self.answer else ""
        return [] if isinstance(content, str) else [content]


def _format(content: str | Mapping[str, Any] | bool) -> Format:
    return matching(content) if isinstance(content, str) else compact_json(content)
