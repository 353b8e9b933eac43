"""Kernel SHAP, by Captum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import feature_ablation
from .base import AnyTarget, Attribution, AttributionBatch, PerturbationExplainer


class Explainer(PerturbationExplainer):
    """Kernel SHAP: Shapley values from a weighted linear regression over random subsets.

    Needs one forward per sample; by default their number depends on the segments.
    Lundberg and Lee: A Unified Approach to Interpreting Model Predictions, 2017.
    """

    captum_class = "KernelShap"
    samples_per_segment = 8

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return int(settings.n_samples or self.samples_per_segment * (len(target.segments) + 1))

    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        if not batch.feature_mask().any():
            # Captum draws subsets of at least two segments; one has the whole difference.
            return feature_ablation.Explainer().attribute(batch, settings)
        return super().attribute(batch, settings)

    def options(self, feature_mask: torch.Tensor, settings: Any) -> Mapping[str, Any]:
        segments = int(feature_mask.max()) + 2
        return {"n_samples": settings.n_samples or self.samples_per_segment * segments}
