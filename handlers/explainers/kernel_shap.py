"""Shapley values from a weighted linear fit over random subsets; needs only a forward.

Lundberg and Lee: A Unified Approach to Interpreting Model Predictions, 2017; by
Captum's KernelShap.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import KernelShap

from handlers.aims import Aim, Attribution
from handlers.explainers.base import BaseExplainer, Scene
from handlers.randomness import drawing_from


class Explainer(BaseExplainer):
    """A forward a subset; without `n_samples` it draws several for each piece."""

    needs_gradients = False
    complete = True
    samples_a_piece = 8

    def forwards(self, aim: Aim, settings: Any) -> int:
        return int(settings.n_samples or self.samples_a_piece * (len(aim.pieces) + 1))

    @torch.no_grad()
    def attribute(self, scene: Scene, settings: Any) -> list[Attribution]:
        features = scene.features()
        with drawing_from(0):
            found = KernelShap(scene.score).attribute(
                scene.ids,
                baselines=scene.baseline,
                additional_forward_args=scene.extra,
                feature_mask=features,
                n_samples=settings.n_samples or self.samples_a_piece * (int(features.max()) + 2),
                perturbations_per_eval=scene.rows_at_once // len(scene.aims),
            )
        return scene.attributions(found, scene.ends(), shared=True)
