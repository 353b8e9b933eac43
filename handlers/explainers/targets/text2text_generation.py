"""Which words of a text led to each token of a generated text.

`target` is a text to be explained instead of the one that the model produces.
"""

from __future__ import annotations

from ...tasks.base import Label
from ...tasks.text2text_generation import GeneratedText, Task
from ..bases.generated_text import TextToTextTarget, TokenWeight
from ..bases.text import Explanation


class GeneratedTextExplanation(Explanation):
    """Which words led to a generated text, as a whole and token by token."""

    tokens: list[TokenWeight]
    prediction: GeneratedText
    target: Label


class ExplanationTarget(TextToTextTarget[Task]):
    """Explains a generated text."""

    results = GeneratedTextExplanation
    example_target = "Nina"
