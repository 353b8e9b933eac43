"""Shapley values from a weighted linear fit over random subsets; needs only a forward.

Lundberg and Lee: A Unified Approach to Interpreting Model Predictions, 2017; by
Captum's KernelShap.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import KernelShap

from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers.base import AttributionBatch, BaseExplainer
from handlers.generation.randomness import seeded


class Explainer(BaseExplainer):
    """A forward a subset; without `n_samples` it draws several for each piece."""

    needs_gradients = False
    complete = True
    samples_a_piece = 8

    def forwards(self, target: AttributionTarget, settings: Any) -> int:
        return int(settings.n_samples or self.samples_a_piece * (len(target.segments) + 1))

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        features = batch.features()
        with seeded(0):
            found = KernelShap(batch.score).attribute(
                batch.ids,
                baselines=batch.baseline,
                additional_forward_args=batch.extra,
                feature_mask=features,
                n_samples=settings.n_samples or self.samples_a_piece * (int(features.max()) + 2),
                perturbations_per_eval=batch.rows_at_once // len(batch.targets),
            )
        return batch.attributions(found, batch.ends(), shared=True)
