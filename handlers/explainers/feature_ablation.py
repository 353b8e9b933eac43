"""What the score loses when a piece is replaced by padding; needs only a forward.

By Captum's FeatureAblation.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import FeatureAblation

from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers.base import AttributionBatch, BaseExplainer


class Explainer(BaseExplainer):
    """One forward a piece."""

    needs_gradients = False
    complete = False

    def forwards(self, target: AttributionTarget, settings: Any) -> int:
        return len(target.segments)

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        found = FeatureAblation(batch.score).attribute(
            batch.ids,
            baselines=batch.baseline,
            additional_forward_args=batch.extra,
            feature_mask=batch.features(),
            perturbations_per_eval=batch.rows_at_once // len(batch.targets),
        )
        return batch.attributions(found, batch.ends(), shared=True)
