"""Which words of a text led to each token of a translation.

`target` is a text to be explained instead of the one that the model produces.
"""

from __future__ import annotations

from ...tasks.base import Label
from ...tasks.translation import Task, Translation
from ..bases.generated_text import TextToTextTarget, TokenWeight
from ..bases.text import Explanation


class TranslationExplanation(Explanation):
    """Which words led to a translation, as a whole and token by token."""

    tokens: list[TokenWeight]
    prediction: Translation
    target: Label


class ExplanationTarget(TextToTextTarget[Task]):
    """Explains a translation."""

    results = TranslationExplanation
    example_target = "Nina singt."
