"""Input x gradient: each embedding times its gradient.

Shrikumar, Greenside and Kundaje: Learning Important Features Through Propagating Activation
Differences, 2017. Uses Captum's LayerGradientXActivation.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import LayerGradientXActivation

from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers.base import AttributionBatch, BaseExplainer, differentiable


class Explainer(BaseExplainer):
    """The fastest method: one forward and one backward per batch. It is not complete."""

    needs_gradients = True
    complete = False

    def forwards(self, target: AttributionTarget, settings: Any) -> int:
        return 1

    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        with differentiable(batch.embeddings):
            captum = LayerGradientXActivation(batch.score, batch.embeddings)
            attributions = captum.attribute(batch.ids, additional_forward_args=batch.extra)
        values = torch.as_tensor(attributions).sum(-1)
        return batch.to_attributions(values, batch.scores(), per_segment=False)
