"""Explanation targets of modes whose rows are images: patches and their heat map."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from typing_extensions import TypedDict

from handlers.explainers._attribution import Attribution, Comparison
from handlers.explainers._heat_map import PixelScale, as_jpeg, heat_map, picture
from handlers.explainers._page import ImageView, View
from handlers.explainers._patches import PIXELS, ExplainedImageModel, ImageTarget, Patches
from handlers.explainers.targets.base import BaseExplanationTarget
from handlers.media.images import png_in_base64
from handlers.model import Model
from handlers.process.deadline import Deadline
from handlers.tasks._image import ImageRow, ImageTask
from handlers.types.parameters import ImageExplanationParameters
from handlers.types.request import RequestState

TaskT = TypeVar("TaskT", bound=ImageTask)


class ImageExplanation(TypedDict):
    """An explanation of one number by the patches of an image.

    `attributions` has a number for each patch, row by row; their sum is `output` -
    `baseline_output` up to a delta. `importances` are the normalised attributions. `image` is what
    the model reads, as JPEG in base64, and `heat_map` a transparent PNG of the same `size`, height
    and width, to lay over it. `converged` is null for methods whose attributions need not sum to
    the output.
    """

    importances: list[list[float]]
    attributions: list[list[float]]
    heat_map: str
    image: str
    size: tuple[int, int]
    image_size: tuple[int, int]
    delta: float
    output: float
    baseline_output: float
    convergence_delta: float
    method: str
    converged: bool | None
    warning: str | None


class ImageExplanationTarget(BaseExplanationTarget[TaskT]):
    """The explanation target of a mode whose rows are images."""

    parameters = ImageExplanationParameters
    model_type = ExplainedImageModel
    example_parameters: ClassVar[Mapping[str, Any]] = {
        "method": "feature_ablation",
        "resolution": 2,
    }
    legacy_keys: ClassVar[Sequence[str]] = ("importances", "delta")
    default_method: ClassVar[str] = "integrated_gradients"
    default_without_gradients: ClassVar[str] = "occlusion"

    def __init__(self, task: TaskT) -> None:
        super().__init__(task)
        self._scale = PixelScale.of(task.image_processor)

    @abstractmethod
    def choose(self, state: RequestState) -> ImageTarget:
        """Return what is explained, by :meth:`target_at` or :meth:`similarity_target`.

        Raises:
            RequestError: the target cannot be understood.
        """

    @abstractmethod
    def describe(self, state: RequestState, selected: ImageTarget) -> dict[str, Any]:
        """Return the `prediction` and the `target` of the explanation."""

    def select(self, state: RequestState) -> list[ImageTarget]:
        return [self.choose(state)]

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[ImageTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        target, found = selected[0], attributions[0]
        row: ImageRow = state.rows[0]
        patches = target.segments
        length = float(np.linalg.norm(found.values)) or 1.0
        importances = patches.grid(found.values / length)
        image = picture(self._scale, row.features[PIXELS], row.height, row.width)
        return {
            "importances": importances,
            "attributions": patches.grid(found.values),
            "heat_map": png_in_base64(heat_map(importances, image.size)),
            "image": as_jpeg(image),
            "size": [image.height, image.width],
            "image_size": [row.height, row.width],
            "delta": found.delta,
            "output": found.output,
            "baseline_output": found.baseline,
            "convergence_delta": found.delta,
            "converged": found.converged,
            **self.describe(state, target),
        }

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[View]:
        yield image_view(explanation)

    def explained(self, model: Model, deadline: Deadline) -> ExplainedImageModel:
        return ExplainedImageModel(
            forward=model.forward_with_gradients,
            has_gradients=model.has_gradients,
            budget=0 if model.runs_alone else self.task.budget,
            deadline=deadline,
            full_precision=model.full_precision,
        )

    def target_at(self, state: RequestState, output: str, index: tuple[int, ...]) -> ImageTarget:
        """Return one number of the outputs of a request's image as a target of attribution."""
        score = float(state.outputs[0][output][index])
        return ImageTarget(state.rows[0], self.patches(state), output, index, score)

    def similarity_target(
        self, state: RequestState, output: str, comparison: Comparison, score: float
    ) -> ImageTarget:
        """Return the similarity of the vector of a request's image as a target of attribution."""
        return ImageTarget(state.rows[0], self.patches(state), output, (), score, comparison)

    def patches(self, state: RequestState) -> Patches:
        """Return the patches that a request asks for."""
        pixels, settings = state.rows[0].features[PIXELS], state.settings
        return Patches.divide(self._scale.baseline(settings.baseline, pixels), settings.resolution)


def image_view(
    explanation: Mapping[str, Any], box: tuple[float, float, float, float] | None = None
) -> ImageView:
    """Return the picture of an explanation with its heat map.

    Args:
        explanation: the explanation.
        box: an object in the picture, as in :class:`ImageView`.
    """
    height, width = explanation["size"]
    return ImageView(
        "Importance for the target",
        explanation["image"],
        explanation["heat_map"],
        height,
        width,
        explanation["importances"],
        box,
    )
