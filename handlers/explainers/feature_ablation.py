"""Feature ablation: the change of the score when a segment is replaced by the baseline.

Uses Captum's FeatureAblation, which needs no gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import FeatureAblation

from .base import AnyTarget, Attribution, AttributionBatch, BaseExplainer


class Explainer(BaseExplainer):
    """Needs one forward per segment."""

    needs_gradients = False
    complete = False

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return len(target.segments)

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        attributions = FeatureAblation(batch.score).attribute(
            batch.inputs,
            baselines=batch.baseline,
            additional_forward_args=batch.extra,
            feature_mask=batch.feature_mask(),
            perturbations_per_eval=batch.max_rows // len(batch.targets),
        )
        return batch.to_attributions(attributions, batch.scores(), per_segment=True)
