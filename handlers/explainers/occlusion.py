"""Occlusion, by Captum."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import torch

from .base import Attribution, BaseExplainer
from .bases.image import ImageTarget, PixelBatch


class Explainer(BaseExplainer):
    """Occlusion: the change of the score when a square of patches is replaced by the baseline.

    The square moves over the grid of patches: it needs one forward per square, and the value of a
    patch is the mean of the squares over it.
    Zeiler and Fergus: Visualizing and Understanding Convolutional Networks, 2014.
    """

    needs_gradients = False
    complete = False
    takes = PixelBatch

    def forwards(self, target: ImageTarget, settings: Any) -> int:
        sides = (target.segments.rows, target.segments.columns)
        return math.prod(_squares(side, settings) for side in sides)

    def batch_key(self, settings: Any) -> Hashable:
        return settings.resolution, settings.window, settings.stride

    @torch.no_grad()
    def attribute(self, batch: PixelBatch, settings: Any) -> list[Attribution]:
        from captum.attr import Occlusion  # noqa: PLC0415 - at the first explanation

        patches, window, stride = batch.targets[0].segments, settings.window, settings.stride
        rows, columns = patches.rows, patches.columns
        attributions = Occlusion(batch.score_visible).attribute(
            torch.ones(len(batch.targets), rows, columns),
            sliding_window_shapes=(min(window, rows), min(window, columns)),
            strides=(min(stride, rows), min(stride, columns)),
            additional_forward_args=(
                batch.inputs,
                batch.baseline,
                batch.feature_mask(),
                *batch.extra,
            ),
            perturbations_per_eval=batch.max_rows // len(batch.targets),
        )
        values = torch.as_tensor(attributions).double().flatten(1).numpy()
        pairs = zip(values, batch.scores(), strict=True)
        return [Attribution(of_patches, *ends) for of_patches, ends in pairs]


def _squares(patches: int, settings: Any) -> int:
    """Return how many squares cover the patches along one side."""
    return 1 + math.ceil(max(0, patches - settings.window) / settings.stride)
