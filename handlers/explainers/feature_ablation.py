"""What the score loses when a piece is replaced by padding; needs only a forward.

By Captum's FeatureAblation.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import FeatureAblation

from handlers.aims import Aim, Attribution
from handlers.explainers.base import BaseExplainer, Scene


class Explainer(BaseExplainer):
    """One forward a piece."""

    needs_gradients = False
    complete = False

    def forwards(self, aim: Aim, settings: Any) -> int:
        return len(aim.pieces)

    @torch.no_grad()
    def attribute(self, scene: Scene, settings: Any) -> list[Attribution]:
        found = FeatureAblation(scene.score).attribute(
            scene.ids,
            baselines=scene.baseline,
            additional_forward_args=scene.extra,
            feature_mask=scene.features(),
            perturbations_per_eval=scene.rows_at_once // len(scene.aims),
        )
        return scene.attributions(found, scene.ends(), shared=True)
