"""The grammar of a text, for llguidance as Lark and for xgrammar as a structural tag.

The text may call tools, or must call some.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from llguidance.gbnf_to_lark import gbnf_to_lark

from ..errors import BadRequest, Unprocessable, copied, summarize
from ..types.parameters import check_setting, json_type
from ..types.structured_output import MAX_SCHEMA_DEPTH, Grammar, Tool, is_too_deep
from .grammar import MAX_CHARACTERS, CompiledGrammar, GrammarCompiler, check_length
from .json_schemas import Schema, closed, json_rule, relaxed
from .reasoning import Thoughts
from .structural_tag import Format, any_of, compact_json, literal, matching, sequence, text_until
from .tool_syntaxes.arguments import arguments_schema
from .tool_syntaxes.base import ToLark, ToolSyntax

Relax = Callable[[Sequence[Schema]], Sequence[Schema]]
# A slash ends a regular expression in Lark, unless a backslash is before it.
SLASH = re.compile(r"(\\.)|/", re.DOTALL)
# What has a meaning in a regular expression.
SYNTAX = re.compile(r"[\\.^$*+?{}\[\]|()/-]")


@dataclass(frozen=True)
class TextGrammar:
    """A grammar, tool calls, or both as alternatives, which a text must match.

    Attributes:
        answer: the grammar of a text without calls; None for any text.
        calls: the tool calls; None without tools.
        compiler: llguidance's compiler for this model.
        thoughts: the thoughts that the text may begin with; None for a text without thoughts.
    """

    answer: Grammar | None
    calls: ToolCallGrammar | None
    compiler: GrammarCompiler = field(repr=False)
    thoughts: Thoughts | None = None

    @cached_property
    def lark(self) -> str:
        """The grammar in llguidance's variant of Lark.

        Raises:
            RequestError: it has a mistake, or this model does not support grammars.
        """
        if self.thoughts is None:
            return self._lark_without_thoughts
        return self.thoughts.lark(self.compiler.literal, self._lark_without_thoughts)

    @property
    def _lark_without_thoughts(self) -> str:
        if self.answer and self.answer.type == "lark":
            return self._own_lark(self.answer)
        answer = to_lark(self.answer, self.compiler.max_characters) if self.answer else None
        opening = self.thoughts.syntax.answer_opening if self.thoughts else ""
        if opening or (answer is None and self.calls is None):
            answer = f"{self.compiler.literal(opening)} ({answer or ANY_TEXT})"
        if self.calls is None:
            return f"start: {answer}"
        # llguidance would read the thoughts as a part of any text.
        excluded = self.thoughts.own_opening if self.thoughts else ""
        return self.calls.lark(self.compiler.literal, answer, excluded)

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
            RequestError: it cannot be compiled, or this model does not support grammars.
        """
        return self.compiler.compile(self.compilable().lark)

    def compilable(self) -> TextGrammar:
        """Return the grammar as llguidance compiles it.

        Constraints that llguidance does not support are removed from schemas that are not strict.

        Raises:
            RequestError: it cannot be compiled, or this model does not support grammars.
        """
        try:
            self.compiler.compile(self.lark)
        except BadRequest as error:
            relaxed_grammar = self._relaxed_in_part()
            if relaxed_grammar is None:
                raise copied(error) from None
            return relaxed_grammar
        return self

    def _relaxed_in_part(self) -> TextGrammar | None:
        """Return the grammar without unsupported constraints; None if that does not suffice.

        Constraints that llguidance compiles one by one may be too many together.
        """
        for relax in (self.compiler.relaxed, _without_constraints):
            grammar = self.relaxed(relax)
            if grammar.lark == self.lark:
                continue
            with suppress(BadRequest):
                self.compiler.compile(grammar.lark)
                return grammar
        return None

    def relaxed(self, relax: Relax) -> TextGrammar:
        """Return the grammar with the schemas that are not strict changed by a function."""
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
        if opening := self.thoughts.syntax.answer_opening if self.thoughts else "":
            answers = [sequence(literal(opening), *(answers or [matching(r"(.|\n)*")]))]
        found = self.calls.format(*answers) if self.calls else answers[0]
        return self.thoughts.format(found) if self.thoughts else found

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
        """The strict JSON schemas, of which no keyword may be ignored."""
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


def to_lark(grammar: Grammar, max_characters: int = MAX_CHARACTERS) -> str:
    """Return the right side of the Lark rule of a grammar.

    Raises:
        RequestError: its value does not fit its type, or has too many characters.
    """
    content = grammar_content(grammar, max_characters)
    if isinstance(content, str):
        return f"/{SLASH.sub(lambda found: found[1] or chr(92) + '/', content)}/"
    return json_rule(content, strict=grammar.strict)


def grammar_content(grammar: Grammar, max_characters: int = MAX_CHARACTERS) -> str | Schema:
    """Return the regular expression of a grammar, or its JSON schema, whose objects are closed.

    Raises:
        RequestError: its value does not fit its type, or has too many characters.
    """
    if grammar.type == "choice":
        return _one_of(grammar.value, max_characters)
    if grammar.type == "regex":
        return _check_text(grammar.value, "The regex of the grammar", max_characters)
    value = grammar.value
    if grammar.type == "json_schema":
        if not isinstance(value, dict) or "schema" not in value:
            raise BadRequest('The value of a json_schema grammar must be {"schema": …}.')
        value = value["schema"]
    return _parse_schema(value, max_characters)


def lark_text(value: Any, max_characters: int) -> str:
    """Return a grammar in llguidance's variant of Lark, given in Lark or in GBNF.

    Raises:
        RequestError: it is no text, is no GBNF, or has too many characters.
    """
    text = _check_text(value, "The grammar", max_characters)
    if "::=" not in text:
        return text
    try:
        return str(gbnf_to_lark(text))
    except Exception as error:  # noqa: BLE001 - its parser fails in several ways
        raise BadRequest(
            f"The grammar cannot be compiled: {summarize(error)}; change it."
        ) from None


def _one_of(texts: Any, max_characters: int) -> str:
    is_list = isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts)
    if not is_list or not all(texts):
        raise BadRequest("The choice of the grammar must be a list of texts; none of them empty.")
    escaped = (SYNTAX.sub(r"\\\g<0>", text).replace("\n", r"\n") for text in texts)
    return _check_text(f"({'|'.join(escaped)})", "The choice of the grammar", max_characters)


def _parse_schema(value: Any, max_characters: int) -> Schema:
    if isinstance(value, str):
        value = _parse_json(value, max_characters)
    if not isinstance(value, (dict, bool)):
        raise BadRequest(f"The grammar must be a JSON schema, and is {json_type(value)}.")
    if is_too_deep(value):
        raise BadRequest(
            f"The schema of the grammar is nested more than {MAX_SCHEMA_DEPTH} deep; simplify it."
        )
    schema: Schema = closed(value)
    return schema


def _parse_json(text: str, max_characters: int) -> Any:
    _check_text(text, "The schema of the grammar", max_characters)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadRequest("The schema of the grammar is not JSON; send an object.") from None


def _check_text(text: Any, name: str, limit: int) -> str:
    if isinstance(text, str):
        check_length(text, name, limit)
    return check_setting(text, name, limit)


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
