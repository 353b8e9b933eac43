"""Which words of a text, or which tokens of a prompt, led to each token of a generated text.

`target` is a text to be explained instead of the one that the model produces; of a question it is
an option or its number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tokenizers import Encoding

from ...batching.tokenization import Window
from ...tasks import summarization, text2text_generation, text_generation, translation
from ...tasks.base import Label
from ...tasks.text_generation import QuestionInput
from ...types.request import RequestState
from ..bases.generated_text import GeneratedTextTarget, TextToTextTarget, TokenWeight
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
    """Explains a text by its prompt, or the answer of a question by the text that it is about."""

    results = TextExplanation
    example_target = " there was a fox"

    def texts(self, state: RequestState, number: int) -> list[str]:
        item = state.input
        if isinstance(item, QuestionInput) and item.question.text in item.prompt:
            return [item.question.text]
        return super().texts(state, number)

    def row(self, state: RequestState) -> Window:
        item, row = state.input, state.rows[0]
        if not isinstance(item, QuestionInput) or item.question.text not in item.prompt:
            return super().row(state)
        start = item.prompt.index(item.question.text)
        part = EncodedPart(row.encoding, start, start + len(item.question.text))
        return replace(row, encoding=part)

    def target_tokens(self, state: RequestState) -> list[int]:
        item = state.input
        if not isinstance(item, QuestionInput):
            return super().target_tokens(state)
        return [item.labels[self._option(state)]]

    def named_target(
        self, state: RequestState, target: list[int], probability: float
    ) -> dict[str, Any]:
        item = state.input
        if not isinstance(item, QuestionInput):
            return super().named_target(state, target, probability)
        probabilities = self.task.decode(item, state.rows, state.outputs)
        options: list[Label] = [
            {"label": option.name, "score": score}
            for option, score in zip(item.question.options, probabilities, strict=True)
        ]
        number = self._option(state)
        return {
            "prediction": options[int(np.argmax(probabilities))],
            "target": {**options[number], "index": number},
        }

    def _option(self, state: RequestState) -> int:
        """Return the number of the option that is explained, by default the likeliest one."""
        target = state.settings.target
        if target is None:
            return int(np.argmax(state.outputs[0]["labels"]))
        return candidate_number(target, [each.name for each in state.input.question.options])


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
