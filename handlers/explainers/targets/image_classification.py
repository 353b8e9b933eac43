"""Explanations of an image's label.

`target` is a class number or a label's name; by default the predicted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from ...tasks.image_classification import Task
from ...types.request import RequestState
from ..bases.image import ImageLabelExplanationTarget


class ExplanationTarget(ImageLabelExplanationTarget[Task]):
    """Explains the logit of one class."""

    def labels(self, state: RequestState) -> Sequence[str]:
        return self.task.labels

    def scores(self, state: RequestState) -> npt.NDArray[Any]:
        return self.task.scores(state.input, state.outputs[0])
