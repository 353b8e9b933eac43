"""Which words of a text, or which tokens of a prompt, led to each token of a generated text.

`target` is a text to be explained instead of the one that the model produces.
"""

from __future__ import annotations

from ...tasks import summarization, text2text_generation, text_generation, translation
from ...tasks.base import Label
from ..bases.generated_text import GeneratedTextTarget, TextToTextTarget, TokenWeight
from ..bases.text import Explanation


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
    """Explains a text by its prompt."""

    results = TextExplanation
    example_target = " there was a fox"
