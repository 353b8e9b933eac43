"""Methods that compare scores with and without segments, without gradients, by Captum's classes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import torch
from captum.attr import (
    FeatureAblation,
    KernelShap,
    Occlusion,
    PerturbationAttribution,
    ShapleyValueSampling,
)

from ..process.ranks import seeded
from .base import AnyTarget, Attribution, AttributionBatch, BaseExplainer
from .bases.image import ImageTarget, PixelBatch


class PerturbationExplainer(BaseExplainer):
    """The base of the methods.

    Attributes:
        method: the class of Captum.
    """

    method: ClassVar[type[PerturbationAttribution]]
    needs_gradients = False
    complete = True

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        feature_mask = batch.feature_mask()
        with seeded(0):
            attributions = self.method(batch.score).attribute(
                batch.inputs,
                baselines=batch.baseline,
                additional_forward_args=batch.extra,
                feature_mask=feature_mask,
                perturbations_per_eval=batch.max_rows // len(batch.targets),
                **self.options(feature_mask, settings),
            )
        return batch.to_attributions(attributions, batch.scores(), per_segment=True)

    def options(self, feature_mask: torch.Tensor, settings: Any) -> Mapping[str, Any]:
        """Return further arguments of Captum's method."""
        return {}


class AblationExplainer(PerturbationExplainer):
    """Feature ablation: the change of the score when a segment is replaced by the baseline.

    Needs one forward per segment.
    """

    method = FeatureAblation
    complete = False

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return len(target.segments)


class KernelShapExplainer(PerturbationExplainer):
    """Kernel SHAP: Shapley values from a weighted linear regression over random subsets.

    Needs one forward per sample; by default their number depends on the segments.
    Lundberg and Lee: A Unified Approach to Interpreting Model Predictions, 2017.
    """

    method = KernelShap
    samples_per_segment = 8

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return int(settings.n_samples or self.samples_per_segment * (len(target.segments) + 1))

    def options(self, feature_mask: torch.Tensor, settings: Any) -> Mapping[str, Any]:
        segments = int(feature_mask.max()) + 2
        return {"n_samples": settings.n_samples or self.samples_per_segment * segments}


class ShapleyExplainer(PerturbationExplainer):
    """Shapley value sampling: the mean contribution of a segment over random permutations.

    Needs one forward per segment and permutation.
    Strumbelj and Kononenko: An Efficient Explanation of Individual Classifications using Game
    Theory, 2010.
    """

    method = ShapleyValueSampling
    default_samples = 10

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return len(target.segments) * int(settings.n_samples or self.default_samples)

    def options(self, feature_mask: torch.Tensor, settings: Any) -> Mapping[str, Any]:
        return {"n_samples": settings.n_samples or self.default_samples}


class OcclusionExplainer(BaseExplainer):
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
