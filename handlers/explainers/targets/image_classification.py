"""Explanations of an image's label.

`target` is a class number or a label's name; by default the predicted one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from handlers.explainers._patches import ImageTarget
from handlers.explainers.targets._image import ImageExplanation, ImageExplanationTarget
from handlers.runtime.jobs import Job
from handlers.tasks.base import Label
from handlers.tasks.image_classification import Task


class ClassTarget(Label):
    """The class that is explained."""

    index: int


class ImageClassExplanation(ImageExplanation):
    """Why an image got a label."""

    prediction: Label
    target: ClassTarget


class ExplanationTarget(ImageExplanationTarget[Task]):
    """Explains the logit of one class."""

    results = ImageClassExplanation
    example_target = 0

    def choose(self, job: Job) -> ImageTarget:
        wanted = job.settings.target
        best = int(np.argmax(job.outputs[0]["logits"]))
        return self.target_at(
            job, "logits", (best if wanted is None else self.label_number(wanted),)
        )

    def describe(self, job: Job, selected: ImageTarget) -> dict[str, Any]:
        scores, number = self.task.scores(job.query, job.outputs[0]), selected.index[0]
        best = int(scores.argmax())
        return {
            "prediction": self._named(best, scores),
            "target": {**self._named(number, scores), "index": number},
        }

    def _named(self, number: int, scores: Any) -> Label:
        return {"label": self.task.labels[number], "score": float(scores[number])}
