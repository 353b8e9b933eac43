"""Which prompt tokens led to each produced token.

`target` is a text to be explained instead of the one that the model produces.
"""

from __future__ import annotations

from ...tasks.base import Label
from ...tasks.text_generation import Generated, Task
from ..bases.generated_text import GeneratedTextTarget, TokenWeight
from ..bases.text import Explanation


class TextExplanation(Explanation):
    """Which words of the prompt led to a text, as a whole and token by token."""

    tokens: list[TokenWeight]
    prediction: Generated
    target: Label


class ExplanationTarget(GeneratedTextTarget[Task]):
    """Explains a text by its prompt."""

    results = TextExplanation
    example_target = " there was a fox"
