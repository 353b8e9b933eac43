"""A generated text as the message of an assistant: thoughts, an answer, and tool calls.

Protocols read a :class:`GeneratedMessage`, and streams send what is new of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from transformers import PreTrainedTokenizerBase

from ..types.structured_output import Tool
from .json_schemas import Schema
from .reasoning import HARMONY, REASONING_SYNTAXES, ReasoningSyntax
from .tool_syntaxes import TOOL_SYNTAXES
from .tool_syntaxes.arguments import arguments_schema
from .tool_syntaxes.base import CallReader, ToolCall, ToolSyntax

# The texts around the parts of a message, of which vocabularies may have special tokens.
MARKS: Sequence[str] = [
    *(mark for syntax in REASONING_SYNTAXES.values() for mark in syntax.marks),
    *(mark for syntax in TOOL_SYNTAXES.values() for mark in syntax.marks),
]
LONGEST_MARK = max(map(len, MARKS))
SPACES = re.compile(r"\s*")


@dataclass(frozen=True)
class GeneratedMessage:
    """The parts of a message, in the order in which models write them.

    Attributes:
        reasoning: the thoughts before the answer.
        content: the answer.
        calls: the complete tool calls; the last one may be cut, and left out.
    """

    reasoning: str = ""
    content: str = ""
    calls: Sequence[ToolCall] = ()


@dataclass(frozen=True)
class MessageSyntax:
    """How a model writes a message after one prompt.

    Attributes:
        reasoning: the syntax of its thoughts; None for a text without thoughts.
        tools: the syntax of its tool calls; None without tools.
        called: the tools that it may call.
        begun: whether the prompt has the opening of the thoughts.
        has_grammar: whether an answer without calls has a grammar, so that the opening of calls
            may be in one of its strings.
        shows_special: whether a text around the parts is a special token.
    """

    reasoning: ReasoningSyntax | None
    tools: ToolSyntax | None
    called: Sequence[Tool] = ()
    begun: bool = False
    has_grammar: bool = False
    shows_special: bool = False

    def for_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> MessageSyntax:
        """Return the syntax with whether its marks are special tokens of a tokenizer."""
        added = tokenizer.added_tokens_decoder.values()
        special = {str(each) for each in added if each.special}
        text = "\0".join(self.marks)
        return replace(self, shows_special=any(each in text for each in special))

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts around the parts, of which the end of an unfinished text may be a beginning."""
        parts = (part for part in (self.reasoning, self.tools) if part)
        return tuple(mark for part in parts for mark in part.marks)

    def is_reasoning(self, text: str, known: int = 0) -> bool:
        """Return whether the thoughts of an unfinished text go on, or may begin.

        Args:
            known: the number of characters of which it is known already.
        """
        if self.reasoning is None:
            return False
        if self.goes_on(text, after_spaces(text), known):
            return True
        may_begin = not self.begun and self.reasoning.opening.startswith(text.lstrip())
        return may_begin or self.split(text)[1] is None

    def goes_on(self, text: str, begin: int, known: int) -> bool:
        """Return whether thoughts go on still; False where that is not known without their text.

        Args:
            text: the text.
            begin: where the thoughts begin.
            known: the number of characters with which they went on.
        """
        if self.reasoning is None or known <= begin + LONGEST_MARK:
            return False
        closing = self.reasoning.closing
        return text.find(closing, known - len(closing) + 1) < 0

    def first_thoughts(self, text: str) -> int | None:
        """Return where thoughts begin that go on; None where other thoughts are before them."""
        if self.reasoning is None or self.reasoning.closing in text:
            return None
        begin, opening = after_spaces(text), self.reasoning.opening
        return begin + len(opening) * text.startswith(opening, begin)

    def parse(self, text: str) -> GeneratedMessage:
        """Return the parts of a text; what ends it may be cut."""
        reasoning, rest = self.split(text)
        if rest is None:
            return GeneratedMessage(reasoning)
        tools = self.tools
        calls = () if tools is None else tools.calls(rest, self.schemas)
        content = tools.content(rest) if tools else rest
        return self.message(reasoning, rest, content, calls, self.answer_reader())

    def message(
        self,
        reasoning: str,
        rest: str,
        content: str,
        calls: Iterable[ToolCall],
        read_answer: Callable[[str], str],
    ) -> GeneratedMessage:
        """Return a message.

        Args:
            reasoning: the thoughts.
            rest: the text after them.
            content: its part before the calls.
            calls: the calls in it.
            read_answer: returns the answer in that part.
        """
        tools, checked = self.tools, tuple[ToolCall, ...]()
        may_call = tools and not (
            self.has_grammar and not rest.startswith(tools.opening, after_spaces(rest))
        )
        if tools and may_call:
            checked = tuple(self._checked(call) for call in calls)
        if not may_call:
            content = rest
        return GeneratedMessage(reasoning, read_answer(content), checked)

    def answer_reader(self) -> Callable[[str], str]:
        """Return what reads the answer in the text after the thoughts, while that text grows."""
        return self.reasoning.answer_reader() if self.reasoning else str

    def split(self, text: str) -> tuple[str, str | None]:
        """Return the thoughts of a text, and the rest; None while the thoughts go on."""
        if self.reasoning is None:
            return "", text
        reasoning, rest = self.reasoning.split(text, begun=self.begun)
        # The messages of gpt-oss may go from one thought to the next.
        while rest and self.reasoning is HARMONY and rest.startswith(HARMONY.opening):
            more, rest = HARMONY.split(rest, begun=False)
            reasoning = f"{reasoning}\n{more}".strip()
        return reasoning, rest

    @cached_property
    def schemas(self) -> Mapping[str, Schema]:
        """The schemas of the arguments of the tools, by name."""
        return {tool.function.name: arguments_schema(tool) for tool in self.called}

    @cached_property
    def _custom(self) -> frozenset[str]:
        return frozenset(tool.function.name for tool in self.called if tool.type == "custom")

    def _checked(self, call: ToolCall) -> ToolCall:
        return replace(call, is_custom=True) if call.name in self._custom else call


class MessageReader:
    """Reads the parts of a text that grows, without reading what it has read again.

    Args:
        syntax: how the model writes the message.
    """

    # The number of characters that were read.
    _known: int
    # Where the first thoughts begin, while they go on.
    _thoughts: int | None
    # Where the text after the thoughts begins, and these; None while that may change.
    _rest: int | None
    _reasoning: str
    _read_answer: Callable[[str], str]
    _calls: CallReader | None

    def __init__(self, syntax: MessageSyntax) -> None:
        self._syntax = syntax
        self._begin()

    def read(self, text: str) -> GeneratedMessage:
        """Return the parts of a text, as :meth:`MessageSyntax.parse` does.

        Args:
            text: a text that begins with the text of the call before.
        """
        if len(text) < self._known:
            self._begin()
        known, self._known = self._known, len(text)
        if self._rest is None:
            return self._read_thoughts(text, known)
        rest = text[self._rest :]
        content = self._calls.read(rest) if self._calls else rest
        calls = self._calls.calls if self._calls else ()
        return self._syntax.message(self._reasoning, rest, content, calls, self._read_answer)

    def _begin(self) -> None:
        syntax = self._syntax
        self._known, self._thoughts = 0, None
        self._rest = None if syntax.reasoning else 0
        self._reasoning, self._read_answer = "", syntax.answer_reader()
        self._calls = CallReader(syntax.tools, syntax.schemas) if syntax.tools else None

    def _read_thoughts(self, text: str, known: int) -> GeneratedMessage:
        """Return the parts of a text of which it is not certain where its thoughts end."""
        syntax = self._syntax
        if self._thoughts is not None and syntax.goes_on(text, self._thoughts, known):
            return GeneratedMessage(text[self._thoughts :].strip())
        reasoning, rest = syntax.split(text)
        self._thoughts = syntax.first_thoughts(text) if rest is None else None
        if rest is not None and len(rest) > after_spaces(rest) + LONGEST_MARK:
            self._reasoning, self._rest = reasoning, len(text) - len(rest)
        return syntax.parse(text)


def after_spaces(text: str) -> int:
    """Return where a text begins after its first spaces and line breaks."""
    found = SPACES.match(text)
    return found.end() if found else 0
