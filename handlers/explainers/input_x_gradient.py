"""Input x gradient, by Captum."""

from __future__ import annotations

from typing import Any

import torch

from .base import AnyTarget, Attribution, AttributionBatch, BaseExplainer


class Explainer(BaseExplainer):
    """Input x gradient: each embedding, or each pixel, times its gradient.

    The fastest method: one forward and one backward per batch. It is not complete.
    Shrikumar, Greenside and Kundaje: Learning Important Features Through Propagating Activation
    Differences, 2017.
    """

    needs_gradients = True
    complete = False

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return 1

    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        from captum.attr import InputXGradient  # noqa: PLC0415 - at the first explanation

        vectors = batch.vectors(batch.inputs).detach().requires_grad_()
        attributions = InputXGradient(batch.score_vectors).attribute(
            vectors, additional_forward_args=(batch.inputs, *batch.extra)
        )
        rows = range(len(batch.targets))
        values = batch.sum_vectors(torch.as_tensor(attributions), rows)
        return batch.to_attributions(values, batch.scores(), per_segment=False)
