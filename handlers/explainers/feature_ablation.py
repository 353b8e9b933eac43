"""Feature ablation, by Captum."""

from __future__ import annotations

from typing import Any

from .base import AnyTarget, PerturbationExplainer


class Explainer(PerturbationExplainer):
    """Feature ablation: the change of the score when a segment is replaced by the baseline.

    Needs one forward per segment.
    """

    captum_class = "FeatureAblation"
    complete = False

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return len(target.segments)
