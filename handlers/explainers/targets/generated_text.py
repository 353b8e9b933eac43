"""Which words of a text, or which tokens of a prompt, led to each token of a generated text.

`target` is a text to be explained instead of the one that the model produces. Of a question it is
an option, and of a text for a guard model a category, or its number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tokenizers import Encoding

from ...tasks import summarization, text2text_generation, text_generation, translation
from ...tasks.base import Label
from ...tasks.text_generation import GuardInput, QuestionInput, TextInPrompt
from ...types.request import RequestState
from ..bases.generated_text import (
    ExplainedPrompt,
    GeneratedTextTarget,
    TextToTextTarget,
    TokenWeight,
)
from ..bases.text import Explanation
from .base import candidate_number


class TokensExplanation(Explanation):
    """Which words led to a text, as a whole and token by token."""

    tokens: list[TokenWeight]
    target: Label


class SummaryExplanation(TokensExplanation):
    """Which words led to a summary, as a whole and token by token."""

    prediction: summarization.Summary


class SummaryTarget(TextToTextTarget[summarization.Task]):
    """Explains a summary."""

    results = SummaryExplanation
    example_target = "Nina sings."


class TranslationExplanation(TokensExplanation):
    """Which words led to a translation, as a whole and token by token."""

    prediction: translation.Translation


class TranslationTarget(TextToTextTarget[translation.Task]):
    """Explains a translation."""

    results = TranslationExplanation
    example_target = "Nina singt."


class GeneratedTextExplanation(TokensExplanation):
    """Which words led to a generated text, as a whole and token by token."""

    prediction: text2text_generation.GeneratedText


class AnswerTarget(TextToTextTarget[text2text_generation.Task]):
    """Explains what a model with an encoder writes for a text."""

    results = GeneratedTextExplanation
    example_target = "Nina"


class TextExplanation(TokensExplanation):
    """Which words of the prompt led to a text, as a whole and token by token."""

    prediction: text_generation.Generated


class ContinuationTarget(GeneratedTextTarget[text_generation.Task]):
    """Explains a text by its prompt, and an answer about a text by the text.

    An answer is an option of a question, or a category of a guard model.
    """

    results = TextExplanation
    example_target = " there was a fox"

    def prompt(self, state: RequestState) -> ExplainedPrompt:
        if not _has_answers(state):
            return super().prompt(state)
        found = self._text(state)
        row = state.rows[found.number]
        part = EncodedPart(row.encoding, found.start, found.start + len(found.text))
        return ExplainedPrompt(replace(row, encoding=part), found.text)

    def target_tokens(self, state: RequestState) -> list[int]:
        if not _has_answers(state):
            return super().target_tokens(state)
        item, number = state.input, self._answer(state)
        if isinstance(item, QuestionInput):
            return [item.labels[number]]
        # The likeliest of the answers that mean the category.
        category = list(item.family.categories.values())[number]
        scores = state.outputs[item.family.questions.index(category.arguments)]["labels"]
        answers = [item.family.answers.index(each) for each in category.answers]
        return [item.labels[max(answers, key=scores.__getitem__)]]

    def named_target(
        self, state: RequestState, target: list[int], probability: float
    ) -> dict[str, Any]:
        if not _has_answers(state):
            return super().named_target(state, target, probability)
        answers, number = self._answers(state), self._answer(state)
        return {
            "prediction": max(answers, key=lambda each: each["score"]),
            "target": {**answers[number], "index": number},
        }

    def _text(self, state: RequestState) -> TextInPrompt:
        """Return the text that is explained, in the prompt of its answer."""
        item = state.input
        if isinstance(item, QuestionInput):
            return self.task.text_in_question(item)
        category = list(item.family.categories.values())[self._answer(state)]
        return self.task.text_for_guard(item, item.family.questions.index(category.arguments))

    def _answers(self, state: RequestState) -> list[Label]:
        """Return the options of a question, or the categories of a guard model."""
        item, found = state.input, self.task.decode(state.input, state.rows, state.outputs)
        if isinstance(item, GuardInput):
            return list(found)
        return [
            {"label": option.name, "score": score}
            for option, score in zip(item.question.options, found, strict=True)
        ]

    def _answer(self, state: RequestState) -> int:
        """Return the number of the answer that is explained, by default the likeliest one."""
        answers, target = self._answers(state), state.settings.target
        if target is None:
            return int(np.argmax([each["score"] for each in answers]))
        return candidate_number(target, [each["label"] for each in answers])


def _has_answers(state: RequestState) -> bool:
    return isinstance(state.input, QuestionInput | GuardInput)


@dataclass(frozen=True)
class EncodedPart:
    """The encoding of a prompt, of which one part is explained.

    Offsets are the part's own, and the tokens outside of it count as special ones.

    Attributes:
        start: the first character of the part.
        end: the character after its last one.
    """

    encoding: Encoding
    start: int
    end: int

    @property
    def tokens(self) -> list[str]:
        """The tokens of the prompt."""
        return list(self.encoding.tokens)

    @property
    def word_ids(self) -> list[int | None]:
        """The number of the word of each token."""
        return list(self.encoding.word_ids)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The characters of each token in the part; none of other tokens."""
        places = []
        for (start, end), outside in zip(
            self.encoding.offsets, self.special_tokens_mask, strict=True
        ):
            length = self.end - self.start
            first, last = max(0, start - self.start), min(length, end - self.start)
            places.append((0, 0) if outside else (first, last))
        return places

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for each special token and each token outside of the part, 0 for the others."""
        masks = []
        for (start, end), special in zip(
            self.encoding.offsets, self.encoding.special_tokens_mask, strict=True
        ):
            outside = end <= self.start or start >= self.end
            masks.append(int(bool(special) or outside))
        return masks

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 for each token of the part, None for the others."""
        return [None if outside else 0 for outside in self.special_tokens_mask]
