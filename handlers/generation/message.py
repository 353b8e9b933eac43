"""A generated text as the message of an assistant: thoughts, an answer, and tool calls.

Protocols read a :class:`GeneratedMessage`, and streams send what is new of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from transformers import PreTrainedTokenizerBase

from ..types.structured_output import Tool
from .json_schemas import Schema
from .reasoning import HARMONY, REASONING_SYNTAXES, ReasoningSyntax
from .tool_syntaxes import TOOL_SYNTAXES, ToolCall, ToolSyntax, arguments_schema

# The texts around the parts of a message, of which vocabularies may have special tokens.
MARKS: Sequence[str] = [
    *(mark for syntax in REASONING_SYNTAXES.values() for mark in syntax.marks),
    *(mark for syntax in TOOL_SYNTAXES.values() for mark in syntax.marks),
]


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

    def is_reasoning(self, text: str) -> bool:
        """Return whether the thoughts of an unfinished text go on, or may begin."""
        if self.reasoning is None:
            return False
        may_begin = not self.begun and self.reasoning.opening.startswith(text.lstrip())
        return may_begin or self._split(text)[1] is None

    def parse(self, text: str) -> GeneratedMessage:
        """Return the parts of a text; what ends it may be cut."""
        reasoning, rest = self._split(text)
        if rest is None:
            return GeneratedMessage(reasoning)
        content, calls = self._calls(rest)
        if self.reasoning:
            content = self.reasoning.answer(content)
        return GeneratedMessage(reasoning, content, calls)

    def _split(self, text: str) -> tuple[str, str | None]:
        if self.reasoning is None:
            return "", text
        reasoning, rest = self.reasoning.split(text, begun=self.begun)
        # The messages of gpt-oss may go from one thought to the next.
        while rest and self.reasoning is HARMONY and rest.startswith(HARMONY.opening):
            more, rest = HARMONY.split(rest, begun=False)
            reasoning = f"{reasoning}\n{more}".strip()
        return reasoning, rest

    @cached_property
    def _schemas(self) -> Mapping[str, Schema]:
        return {tool.function.name: arguments_schema(tool) for tool in self.called}

    @cached_property
    def _custom(self) -> frozenset[str]:
        return frozenset(tool.function.name for tool in self.called if tool.type == "custom")

    def _checked(self, call: ToolCall) -> ToolCall:
        return replace(call, is_custom=True) if call.name in self._custom else call

    def _calls(self, text: str) -> tuple[str, Sequence[ToolCall]]:
        """Return a text without its calls, and these."""
        tools = self.tools
        if tools is None or (self.has_grammar and not text.lstrip().startswith(tools.opening)):
            return text, ()
        calls = [self._checked(call) for call in tools.calls(text, self._schemas)]
        has_parts = calls or tools.opening or tools.required
        return tools.content(text) if has_parts else text, calls
