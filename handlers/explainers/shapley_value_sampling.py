"""Each piece's mean share over random orders of adding pieces; needs only a forward.

Strumbelj and Kononenko: An Efficient Explanation of Individual Classifications using Game Theory,
2010; by Captum's ShapleyValueSampling.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import ShapleyValueSampling

from handlers.aims import Aim, Attribution
from handlers.explainers.base import BaseExplainer, Scene
from handlers.randomness import drawing_from


class Explainer(BaseExplainer):
    """A forward a piece and order; the values sum to the difference exactly."""

    needs_gradients = False
    complete = True
    usual_samples = 10

    def forwards(self, aim: Aim, settings: Any) -> int:
        return len(aim.pieces) * int(settings.n_samples or self.usual_samples)

    @torch.no_grad()
    def attribute(self, scene: Scene, settings: Any) -> list[Attribution]:
        with drawing_from(0):
            found = ShapleyValueSampling(scene.score).attribute(
                scene.ids,
                baselines=scene.baseline,
                additional_forward_args=scene.extra,
                feature_mask=scene.features(),
                n_samples=settings.n_samples or self.usual_samples,
                perturbations_per_eval=scene.rows_at_once // len(scene.aims),
            )
        return scene.attributions(found, scene.ends(), shared=True)
