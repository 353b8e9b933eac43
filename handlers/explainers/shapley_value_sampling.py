"""Shapley value sampling, by Captum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .base import AnyTarget, PerturbationExplainer


class Explainer(PerturbationExplainer):
    """Shapley value sampling: the mean contribution of a segment over random permutations.

    Needs one forward per segment and permutation.
    Strumbelj and Kononenko: An Efficient Explanation of Individual Classifications using Game
    Theory, 2010.
    """

    captum_class = "ShapleyValueSampling"
    default_samples = 10

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return len(target.segments) * int(settings.n_samples or self.default_samples)

    def options(self, feature_mask: torch.Tensor, settings: Any) -> Mapping[str, Any]:
        return {"n_samples": settings.n_samples or self.default_samples}
