"""Which prompt tokens led to each produced token.

`target` is a text to be explained instead of the one that the model produces.
"""

from __future__ import annotations

from handlers.explainers.bases.generated_text import GeneratedTextTarget, TokenWeight
from handlers.explainers.bases.text import Explanation
from handlers.tasks.base import Label
from handlers.tasks.text_generation import Generated, Task


class TextExplanation(Explanation):
    """Which words of the prompt led to a text, as a whole and token by token."""

    tokens: list[TokenWeight]
    prediction: Generated
    target: Label


class ExplanationTarget(GeneratedTextTarget[Task]):
    """Explains a text by its prompt."""

    results = TextExplanation
    example_target = " there was a fox"
