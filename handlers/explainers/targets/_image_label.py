"""Explanation targets of modes that give an image labels with scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy.typing as npt

from handlers.explainers._patches import ImageTarget
from handlers.explainers.targets._image import ImageExplanation, ImageExplanationTarget
from handlers.explainers.targets.base import LabelTarget
from handlers.tasks._image import ImageTask
from handlers.tasks.base import Label
from handlers.types.request import RequestState

TaskT = TypeVar("TaskT", bound=ImageTask)


class ImageLabelExplanation(ImageExplanation):
    """Why an image got a label."""

    prediction: Label
    target: LabelTarget


class ImageLabelExplanationTarget(ImageExplanationTarget[TaskT]):
    """Explains the logit of one label, by default the one with the highest score."""

    results = ImageLabelExplanation
    example_target = 0

    @abstractmethod
    def labels(self, state: RequestState) -> Sequence[str]:
        """Return the labels of a request."""

    @abstractmethod
    def scores(self, state: RequestState) -> npt.NDArray[Any]:
        """Return the score of each label. Shape: (labels,)."""

    def number_of(self, state: RequestState, target: Any) -> int:
        """Return the number of the label that a request names.

        Raises:
            BadRequest: there is no such label.
        """
        return self.label_number(target)

    def logit(self, state: RequestState, number: int) -> ImageTarget:
        """Return the logit of a label as a target of attribution."""
        return self.target_at(state, "logits", (number,))

    def choose(self, state: RequestState) -> ImageTarget:
        return self.logit(state, self._number(state, self.scores(state)))

    def describe(self, state: RequestState, selected: ImageTarget) -> dict[str, Any]:
        scores = self.scores(state)
        number = self._number(state, scores)
        labels: list[Label] = [
            {"label": label, "score": score}
            for label, score in zip(self.labels(state), scores.tolist(), strict=True)
        ]
        return {
            "prediction": labels[int(scores.argmax())],
            "target": {**labels[number], "index": number},
        }

    def _number(self, state: RequestState, scores: npt.NDArray[Any]) -> int:
        wanted = state.settings.target
        return int(scores.argmax()) if wanted is None else self.number_of(state, wanted)
