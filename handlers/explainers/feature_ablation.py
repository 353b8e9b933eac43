"""Feature ablation, by Captum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import AnyTarget
from .bases.perturbation import PerturbationExplainer

if TYPE_CHECKING:
    from captum.attr import PerturbationAttribution


class Explainer(PerturbationExplainer):
    """Feature ablation: the change of the score when a segment is replaced by the baseline.

    Needs one forward per segment.
    """

    complete = False

    def method(self) -> type[PerturbationAttribution]:
        from captum.attr import FeatureAblation  # noqa: PLC0415 - at the first explanation

        return FeatureAblation

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return len(target.segments)
