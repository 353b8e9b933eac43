"""The base of the methods that compare scores with and without segments, without gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from ...process.ranks import seeded
from ..base import Attribution, AttributionBatch, BaseExplainer


class PerturbationExplainer(BaseExplainer):
    """Explains by a method of Captum that takes masks of features.

    Attributes:
        captum_class: the name of its class in `captum.attr`.
    """

    captum_class: ClassVar[str]
    needs_gradients = False
    complete = True

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        from captum import attr  # noqa: PLC0415 - at the first explanation

        feature_mask = batch.feature_mask()
        method = getattr(attr, self.captum_class)(batch.score)
        with seeded(0):
            attributions = method.attribute(
                batch.inputs,
                baselines=batch.baseline,
                additional_forward_args=batch.extra,
                feature_mask=feature_mask,
                perturbations_per_eval=batch.max_rows // len(batch.targets),
                **self.options(feature_mask, settings),
            )
        return batch.to_attributions(attributions, batch.scores(), per_segment=True)

    def options(self, feature_mask: torch.Tensor, settings: Any) -> Mapping[str, Any]:
        """Return further arguments of Captum's method."""
        return {}
