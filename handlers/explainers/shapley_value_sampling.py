"""Shapley value sampling, by Captum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .base import AnyTarget, PerturbationExplainer, segment_count


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

    def group_rows(self, feature_mask: torch.Tensor) -> Iterator[list[int]]:
        # A permutation is drawn of the segments of the longest row.
        alike = defaultdict[int, list[int]](list)
        for row, segments in enumerate(feature_mask):
            alike[segment_count(segments)].append(row)
        return iter(alike.values())

    def method(self, feature_mask: torch.Tensor, settings: Any) -> tuple[str, Mapping[str, Any]]:
        return self.captum_class, {"n_samples": settings.n_samples or self.default_samples}
