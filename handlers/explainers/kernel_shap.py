"""Kernel SHAP: Shapley values from a weighted linear regression over random subsets.

Lundberg and Lee: A Unified Approach to Interpreting Model Predictions, 2017.
Uses Captum's KernelShap, which needs no gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import KernelShap

from ..process.ranks import seeded
from .base import AnyTarget, Attribution, AttributionBatch, BaseExplainer


class Explainer(BaseExplainer):
    """Needs one forward per sample; by default their number depends on the segments."""

    needs_gradients = False
    complete = True
    samples_per_segment = 8

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return int(settings.n_samples or self.samples_per_segment * (len(target.segments) + 1))

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        feature_mask = batch.feature_mask()
        with seeded(0):
            attributions = KernelShap(batch.score).attribute(
                batch.inputs,
                baselines=batch.baseline,
                additional_forward_args=batch.extra,
                feature_mask=feature_mask,
                n_samples=settings.n_samples
                or self.samples_per_segment * (int(feature_mask.max()) + 2),
                perturbations_per_eval=batch.max_rows // len(batch.targets),
            )
        return batch.to_attributions(attributions, batch.scores(), per_segment=True)
