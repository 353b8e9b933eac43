"""Each piece's mean share over random orders of adding pieces; needs only a forward.

Strumbelj and Kononenko: An Efficient Explanation of Individual Classifications using Game Theory,
2010; by Captum's ShapleyValueSampling.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import ShapleyValueSampling

from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers.base import AttributionBatch, BaseExplainer
from handlers.generation.randomness import seeded


class Explainer(BaseExplainer):
    """A forward a piece and order; the values sum to the difference exactly."""

    needs_gradients = False
    complete = True
    usual_samples = 10

    def forwards(self, target: AttributionTarget, settings: Any) -> int:
        return len(target.segments) * int(settings.n_samples or self.usual_samples)

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        with seeded(0):
            found = ShapleyValueSampling(batch.score).attribute(
                batch.ids,
                baselines=batch.baseline,
                additional_forward_args=batch.extra,
                feature_mask=batch.features(),
                n_samples=settings.n_samples or self.usual_samples,
                perturbations_per_eval=batch.rows_at_once // len(batch.targets),
            )
        return batch.attributions(found, batch.ends(), shared=True)
