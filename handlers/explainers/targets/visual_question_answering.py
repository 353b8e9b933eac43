"""Explanations of the answer to a question about an image: which parts of the image drive it.

`target` is an answer or its number among the model's answers; by default the predicted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt
import torch

from ...batching.padding import Batch
from ...model import Model
from ...process.deadline import Deadline
from ...tasks.visual_question_answering import Task, fixed_patch_order
from ...types.request import RequestState
from ..bases.image import ExplainedImageModel, ImageLabelExplanationTarget


class ExplanationTarget(ImageLabelExplanationTarget[Task]):
    """Explains the logit of one answer, for a model that chooses it among its answers."""

    def labels(self, state: RequestState) -> Sequence[str]:
        return self.task.labels

    def scores(self, state: RequestState) -> npt.NDArray[Any]:
        return self.task.scores(state.outputs[0])

    def explained(self, model: Model, deadline: Deadline) -> ExplainedImageModel:
        explained = super().explained(model, deadline)

        def forward(batch: Batch) -> Mapping[str, torch.Tensor]:
            with fixed_patch_order():
                return explained.forward(batch)

        return replace(explained, forward=forward)
