"""Which words of a text led to each token of a summary.

`target` is a text to be explained instead of the one that the model produces.
"""

from __future__ import annotations

from ...tasks.base import Label
from ...tasks.summarization import Summary, Task
from ..bases.generated_text import TextToTextTarget, TokenWeight
from ..bases.text import Explanation


class SummaryExplanation(Explanation):
    """Which words led to a summary, as a whole and token by token."""

    tokens: list[TokenWeight]
    prediction: Summary
    target: Label


class ExplanationTarget(TextToTextTarget[Task]):
    """Explains a summary."""

    results = SummaryExplanation
    example_target = "Nina sings."
