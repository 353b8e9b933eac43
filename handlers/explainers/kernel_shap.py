"""Kernel SHAP, by Captum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .base import AnyTarget, PerturbationExplainer, segment_count


class Explainer(PerturbationExplainer):
    """Kernel SHAP: Shapley values from a weighted linear regression over random subsets.

    Needs one forward per sample; by default their number depends on the segments.
    Lundberg and Lee: A Unified Approach to Interpreting Model Predictions, 2017.
    """

    captum_class = "KernelShap"
    samples_per_segment = 8

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return int(settings.n_samples or self.samples_per_segment * (len(target.segments) + 1))

    def group_rows(self, feature_mask: torch.Tensor) -> Iterator[list[int]]:
        # Captum attributes rows one after the other, with the segments of the longest.
        return ([row] for row in range(len(feature_mask)))

    def method(self, feature_mask: torch.Tensor, settings: Any) -> tuple[str, Mapping[str, Any]]:
        segments = segment_count(feature_mask)
        if segments == 1:
            # Captum draws subsets of at least two segments; one has the whole difference.
            return "FeatureAblation", {}
        samples = settings.n_samples or self.samples_per_segment * (segments + 1)
        return self.captum_class, {"n_samples": samples}
