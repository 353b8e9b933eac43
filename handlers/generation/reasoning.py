"""The thoughts that a model writes before its answer: the texts around them, by families of models.

    <think>\\nLet me see.\\n</think>\\n\\nYes.      DeepSeek R1, Qwen3, SmolLM3, GLM, Granite 3.3
    [THINK]Let me see.[/THINK]Yes.               Mistral
    <|channel|>analysis<|message|>Let me see.<|end|>
    <|start|>assistant<|channel|>final<|message|>Yes.    gpt-oss, without the line break

https://huggingface.co/docs/transformers/chat_response_parsing
https://docs.vllm.ai/en/latest/features/reasoning_outputs.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import Unprocessable
from .structural_tag import Format, any_of, any_text, matching, sequence, tag

# The rule of a Lark grammar that a text begins with.
START = re.compile(r"^start(?=\s*(\[[^\]]*\])?\s*:)", re.MULTILINE)
# The maximum number of spaces and line breaks between thoughts and an answer with a grammar.
MAX_GAP = 4


@dataclass(frozen=True)
class ReasoningSyntax:
    """The texts around the thoughts of a model, and around the answer after them.

    Attributes:
        opening: the text before the thoughts.
        closing: the text after the thoughts.
        between: the text between the thoughts and the answer, or a call.
        answer_opening: the text before an answer.
        answer_closing: the text after an answer.
    """

    opening: str
    closing: str
    between: str = ""
    answer_opening: str = ""
    answer_closing: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts around thoughts and answers."""
        texts = (self.opening, self.closing, self.answer_opening, self.answer_closing)
        return tuple(filter(None, (*texts, self.between, self.answer_closing.strip())))

    def is_begun_by(self, prompt: str) -> bool:
        """Return whether a prompt ends with the opening, so that a new text begins in thoughts."""
        return prompt.rstrip().endswith(self.opening.rstrip())

    def is_ended_by(self, prompt: str) -> bool:
        """Return whether a prompt ends with the closing, so that the new text has no thoughts."""
        ends = (self.closing + self.between + self.answer_opening, self.closing)
        return prompt.rstrip().endswith(tuple(end.rstrip() for end in ends))

    def split(self, text: str, *, begun: bool) -> tuple[str, str | None]:
        """Return the thoughts of a text, and the rest; None while the thoughts go on.

        Args:
            begun: whether the prompt has the opening.
        """
        start = text.lstrip()
        if start.startswith(self.opening):
            start = start[len(self.opening) :]
        elif not begun:
            return ("", text) if start else ("", None)
        thoughts, closing, rest = start.partition(self.closing)
        if not closing:
            return thoughts.strip(), None
        return thoughts.strip(), rest.lstrip().removeprefix(self.between)

    def answer(self, rest: str) -> str:
        """Return the answer of a text without thoughts."""
        opening, closing = self.answer_opening, self.answer_closing
        if opening:
            # The line breaks between the texts and the answer may be absent.
            rest = rest.lstrip().removeprefix(opening.rstrip())
            rest = rest.removeprefix("\n") if opening.endswith("\n") else rest
        ended, shown = rest.rstrip(), closing.lstrip()
        if not (closing and ended.endswith(shown)):
            return rest
        ended = ended.removesuffix(shown)
        return ended.removesuffix("\n") if closing.startswith("\n") else ended

    def answer_reader(self) -> Callable[[str], str]:
        """Return what reads the answer of a text that grows, as :meth:`answer` does."""
        return self.answer


class HarmonySyntax(ReasoningSyntax):
    """The syntax of gpt-oss: an answer may be JSON, and come after a text of `commentary`."""

    def answer(self, rest: str) -> str:
        return self.answer_reader()(rest)

    def answer_reader(self) -> Callable[[str], str]:
        return HarmonyAnswerReader().read


class HarmonyAnswerReader:
    """Reads an answer of gpt-oss that grows, without searching for headers in the same text again.

    A line break stands for each header within the answer.
    """

    def __init__(self) -> None:
        # What was read of the text and does not change, and what the answer has of it.
        self._end, self._answer = 0, ""

    def read(self, rest: str) -> str:
        """Return the answer of a text without thoughts.

        Args:
            rest: a text that begins with the text of the call before.
        """
        if len(rest) < self._end:
            self._end, self._answer = 0, ""
        end, answer = self._end, self._answer
        if not end and (first := FIRST_HEADER.match(rest)):
            end = first.end()
        for header in NEXT_HEADER.finditer(rest, end):
            answer += rest[end : header.start()] + "\n"
            end = header.end()
        certain = max(end, len(rest) - MAX_HEADER)
        answer += rest[end:certain]
        # Only spaces may be before the first header.
        if end or rest[:certain].strip():
            self._end, self._answer = certain, answer
        return answer + UNFINISHED_HEADER.sub("", rest[certain:])


# The texts before the answer of gpt-oss, or before a part of it.
HEADER = (
    r"(?:<\|start\|>assistant)?<\|channel\|>(?:final|commentary)"
    r"(?: ?<\|constrain\|>\w{1,40})?<\|message\|>"
)
FIRST_HEADER = re.compile(rf"\s*{HEADER}")
NEXT_HEADER = re.compile(rf"<\|end\|>{HEADER}")
UNFINISHED_HEADER = re.compile(
    r"(?:<\|end\|>)?(?:<\|start\|>[^<]*)?"
    r"(?:<\|channel\|>[^<]*(?:<\|constrain\|>[^<]*)?(?:<\|?[a-z]*\|?)?)?$"
)
# No header is longer.
MAX_HEADER = 128
THINK = ReasoningSyntax("<think>", "</think>")
HARMONY = HarmonySyntax(
    opening="<|channel|>analysis<|message|>",
    closing="<|end|>",
    between="<|start|>assistant",
    answer_opening="<|channel|>final<|message|>",
)
# By the names of the YAML's `reasoning_parser`, which are vLLM's where it has one; the first whose
# closing is in a template decides, or else its opening.
REASONING_SYNTAXES: Mapping[str, ReasoningSyntax] = {
    "gpt_oss": HARMONY,
    "mistral": ReasoningSyntax("[THINK]", "[/THINK]"),
    "gemma4": ReasoningSyntax("<|channel>thought\n", "<channel|>"),
    "seed_oss": ReasoningSyntax("<seed:think>", "</seed:think>"),
    "minimax_m3": ReasoningSyntax("<mm:think>", "</mm:think>"),
    "cohere_command4": ReasoningSyntax(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        answer_opening="<|START_TEXT|>",
        answer_closing="<|END_TEXT|>",
    ),
    "cohere": ReasoningSyntax(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        answer_opening="<|START_RESPONSE|>",
        answer_closing="<|END_RESPONSE|>",
    ),
    "granite": ReasoningSyntax("Here is my thought process:", "Here is my response:"),
    "granite3_3": ReasoningSyntax(
        "<think>", "</think>", answer_opening="<response>", answer_closing="</response>"
    ),
    "exaone_deep": ReasoningSyntax("<thought>", "</thought>"),
    "apertus": ReasoningSyntax("<|inner_prefix|>", "<|inner_suffix|>"),
    "apriel": ReasoningSyntax(
        "Here are my reasoning steps:",
        "[BEGIN FINAL RESPONSE]",
        answer_closing="\n[END FINAL RESPONSE]",
    ),
    "hunyuan_a13b": ReasoningSyntax(
        "<think>", "</think>", answer_opening="<answer>\n", answer_closing="\n</answer>"
    ),
    "ernie45": ReasoningSyntax(
        "<think>", "</think>", answer_opening="<response>\n", answer_closing="\n</response>"
    ),
    "qwen3": THINK,
}
# Further texts of a template of which one shows a syntax.
FURTHER_MARKS: Mapping[str, Sequence[str]] = {
    "gpt_oss": ("<|channel|>analysis",),
    "granite3_3": ("<response></response>",),
    "cohere_command4": ("<|START_TEXT|>",),
    "ernie45": ("<global_setting>",),
    # Of the sparse model, and of the dense ones.
    "hunyuan_a13b": ("<|extra_4|>", "<｜hy_place▁holder▁no▁3｜>"),
}
# Other names of syntaxes: the families that have the same texts.
ALIASES: Mapping[str, str] = dict.fromkeys(
    ("deepseek_r1", "deepseek_v3", "glm45", "smollm3", "minimax_m2", "nemotron"), "qwen3"
)


@dataclass(frozen=True)
class Thoughts:
    """The thoughts that a text with a grammar may begin with.

    Attributes:
        begun: whether the prompt has the opening.
        budget: the maximum number of tokens of the thoughts; None for any.
    """

    syntax: ReasoningSyntax
    begun: bool
    budget: int | None = None

    @property
    def own_opening(self) -> str:
        """The opening of thoughts in the text itself; empty if the prompt has it."""
        return "" if self.begun else self.syntax.opening

    def lark(self, to_lark: Callable[[str], str], answer: str) -> str:
        """Return the Lark rules of a text: thoughts, and what follows.

        Args:
            to_lark: returns the Lark expression of a text that may have special tokens.
            answer: the Lark rules of what follows, of which `start` is the first.

        Raises:
            Unprocessable: the tokens of the thoughts cannot be counted.
        """
        opening, closing = to_lark(self.syntax.opening), to_lark(self.syntax.closing)
        between = to_lark(self.syntax.between)
        thoughts = "thoughts" if self.begun else f"({opening} thoughts)?"
        return "\n".join(
            [
                f"start: {thoughts} after_thoughts",
                *self._rules(closing, between),
                rf"THOUGHTS_GAP: /\s{{1,{MAX_GAP}}}/",
                START.sub("after_thoughts", answer, count=1),
            ]
        )

    def format(self, answer: Format) -> Format:
        """Return the format of a text in a structural tag."""
        closing = self.syntax.closing + self.syntax.between
        gap = matching(rf"\s{{0,{MAX_GAP}}}")
        thoughts = tag(self.own_opening, any_text(), closing)
        thinking = sequence(thoughts, gap, answer)
        return thinking if self.begun else any_of(thinking, answer)

    def _rules(self, closing: str, between: str) -> list[str]:
        if token := re.fullmatch(r"<\[(\d+)\]>", closing):
            tokens = f"<[^{token[1]}]>*" if self.budget is None else ""
            if self.budget:
                tokens = f"<[^{token[1]}]>{{0,{self.budget}}}"
            return [f"thoughts: {tokens} {closing} {between} THOUGHTS_GAP?"]
        if self.budget is not None:
            raise Unprocessable(
                "thinking_token_budget is not supported by this model, whose thoughts end with a"
                " text of several tokens; leave it out."
            )
        return [
            f"thoughts: thought {between} THOUGHTS_GAP?",
            f"thought[lazy]: THOUGHT {closing}",
            r"THOUGHT: /(.|\n)*/",
        ]


def find_reasoning(template: str, name: str | None = None) -> ReasoningSyntax | None:
    """Return the syntax of the thoughts of a model; None for a model without thoughts.

    Args:
        template: the chat template, with the response schema of the tokenizer if it has one.
        name: the name of a syntax, instead of that which the template shows; `none` for none.
    """
    if name is not None:
        return REASONING_SYNTAXES.get(ALIASES.get(name, name))
    shown = [
        syntax
        for known, syntax in REASONING_SYNTAXES.items()
        if any(mark in template for mark in FURTHER_MARKS.get(known, ("",)))
    ]
    # A template may begin the thoughts of a new message, and have those before it nowhere.
    closed = (syntax for syntax in shown if syntax.closing in template)
    opened = (syntax for syntax in shown if syntax.opening in template)
    return next(closed, None) or next(opened, None)


def template_text(template: str, response_schema: str) -> str:
    """Return a template and the regular expressions of a response schema as plain texts."""
    return template + re.sub(r"\\+(?=[^\w\s])", "", response_schema)
