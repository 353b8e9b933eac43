"""What a text is bound to, for each of the compilers: llguidance, and xgrammar in an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from handlers.errors import BadRequest, Unprocessable, copied
from handlers.generation.compact_json import compact_json
from handlers.generation.grammar import (
    CompiledGrammar,
    GrammarCompiler,
    grammar_content,
    lark_text,
    to_lark,
)
from handlers.generation.json_schemas import Schema, relaxed
from handlers.generation.structural_tag import Format, matching
from handlers.generation.tool_calls import ToolUse
from handlers.types.structured_output import Grammar

Relax = Callable[[Sequence[Schema]], Sequence[Schema]]


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
        answer = to_lark(self.answer, self.compiler.max_characters) if self.answer else None
        return self.calls.lark(self.compiler.literal, answer) if self.calls else f"start: {answer}"

    @property
    def is_lark(self) -> bool:
        """Whether it is given in Lark, which xgrammar does not read."""
        return self.answer is not None and self.answer.type == "lark"

    def _own_lark(self, answer: Grammar) -> str:
        if self.calls:
            raise Unprocessable("A grammar in Lark and tools exclude one another; leave one out.")
        return lark_text(answer.value, self.compiler.max_characters)

    def compile(self) -> CompiledGrammar:
        """Return the grammar as llguidance compiles it.

        Raises:
            RequestError: it cannot be compiled, or this model cannot have grammars.
        """
        return self.compiler.compile(self.followed().lark)

    def followed(self) -> TextGrammar:
        """Return the grammar as llguidance can compile it.

        It is without the constraints that llguidance lacks, where a schema is not strict.

        Raises:
            RequestError: it cannot be compiled, or this model cannot have grammars.
        """
        try:
            self.compiler.compile(self.lark)
        except BadRequest as error:
            followed = self._followed_in_part()
            if followed is None:
                raise copied(error) from None
            return followed
        return self

    def _followed_in_part(self) -> TextGrammar | None:
        """Return the grammar without what llguidance lacks; None where that does not suffice.

        Constraints that are compiled one by one may be too much together.
        """
        for relax in (self.compiler.relaxed, _without_constraints):
            followed = self.relaxed(relax)
            if followed.lark == self.lark:
                continue
            with suppress(BadRequest):
                self.compiler.compile(followed.lark)
                return followed
        return None

    def relaxed(self, relax: Relax) -> TextGrammar:
        """Return the grammar with other schemas, where they are not strict.

        Args:
            relax: returns each of some schemas without what a compiler lacks.
        """
        answer, calls = self.answer, self.calls
        if answer and not answer.strict and (schemas := self._answer_schemas):
            answer = Grammar(type="json", value=relax(schemas)[0], strict=False)
        return replace(self, answer=answer, calls=calls and calls.relaxed(relax))

    @property
    def format(self) -> Format:
        """The format of its structural tag, for xgrammar.

        Raises:
            RequestError: it cannot be written as one.
        """
        answers = [_format(content) for content in self._contents]
        return self.calls.format(*answers) if self.calls else answers[0]

    @property
    def patterns(self) -> Sequence[str]:
        """The regular expressions in it, outside of schemas."""
        return [content for content in self._contents if isinstance(content, str)]

    @property
    def schemas(self) -> Sequence[Schema]:
        """The JSON schemas in it."""
        return [*self._answer_schemas, *(self.calls.schemas if self.calls else ())]

    @property
    def strict_schemas(self) -> Sequence[Schema]:
        """The JSON schemas in it of which no keyword may be ignored."""
        answers = self._answer_schemas if self.answer and self.answer.strict else []
        return [*answers, *(self.calls.strict_schemas if self.calls else ())]

    @property
    def _answer_schemas(self) -> Sequence[Schema]:
        return [content for content in self._contents if not isinstance(content, str)]

    @property
    def _contents(self) -> Sequence[str | Schema]:
        """The regular expression or the schema of the answer, if it has a grammar."""
        limit = self.compiler.max_characters
        if self.answer is None or self.is_lark:
            return []
        return [grammar_content(self.answer, limit)]


def _without_constraints(schemas: Sequence[Schema]) -> list[Schema]:
    return [relaxed(schema, lambda _: True) for schema in schemas]


def _format(content: str | Schema) -> Format:
    return matching(content) if isinstance(content, str) else compact_json(content)
