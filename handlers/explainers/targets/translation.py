"""Which words of a text led to each token of a translation.

`target` is a text to be explained instead of the one that the model produces.
"""

from __future__ import annotations

from handlers.explainers.bases.generated_text import TextToTextTarget, TokenWeight
from handlers.explainers.bases.text import Explanation
from handlers.tasks.base import Label
from handlers.tasks.translation import Task, Translation


class TranslationExplanation(Explanation):
    """Which words led to a translation, as a whole and token by token."""

    tokens: list[TokenWeight]
    prediction: Translation
    target: Label


class ExplanationTarget(TextToTextTarget[Task]):
    """Explains a translation."""

    results = TranslationExplanation
    example_target = "Nina singt."
