"""The base of the methods that compare scores with and without segments, without gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ...process.ranks import seeded
from ..base import Attribution, AttributionBatch, BaseExplainer

if TYPE_CHECKING:
    from captum.attr import PerturbationAttribution


class PerturbationExplainer(BaseExplainer):
    """Explains by a method of Captum that takes masks of features."""

    needs_gradients = False
    complete = True

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        feature_mask = batch.feature_mask()
        with seeded(0):
            attributions = self.method()(batch.score).attribute(
                batch.inputs,
                baselines=batch.baseline,
                additional_forward_args=batch.extra,
                feature_mask=feature_mask,
                perturbations_per_eval=batch.max_rows // len(batch.targets),
                **self.options(feature_mask, settings),
            )
        return batch.to_attributions(attributions, batch.scores(), per_segment=True)

    @abstractmethod
    def method(self) -> type[PerturbationAttribution]:
        """Return the class of Captum, which is imported at the first explanation."""

    def options(self, feature_mask: torch.Tensor, settings: Any) -> Mapping[str, Any]:
        """Return further arguments of Captum's method."""
        return {}
