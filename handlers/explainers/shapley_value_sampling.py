"""Shapley value sampling: the mean contribution of a segment over random permutations.

Strumbelj and Kononenko: An Efficient Explanation of Individual Classifications using Game Theory,
2010. Uses Captum's ShapleyValueSampling, which needs no gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import ShapleyValueSampling

from ..process.ranks import seeded
from .base import AnyTarget, Attribution, AttributionBatch, BaseExplainer


class Explainer(BaseExplainer):
    """Needs one forward per segment and permutation."""

    needs_gradients = False
    complete = True
    default_samples = 10

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return len(target.segments) * int(settings.n_samples or self.default_samples)

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        with seeded(0):
            attributions = ShapleyValueSampling(batch.score).attribute(
                batch.inputs,
                baselines=batch.baseline,
                additional_forward_args=batch.extra,
                feature_mask=batch.feature_mask(),
                n_samples=settings.n_samples or self.default_samples,
                perturbations_per_eval=batch.max_rows // len(batch.targets),
            )
        return batch.to_attributions(attributions, batch.scores(), per_segment=True)
