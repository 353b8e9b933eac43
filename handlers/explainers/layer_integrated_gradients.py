"""Integrated gradients of the word embeddings, from padding to the text.

Sundararajan, Taly and Yan: Axiomatic Attribution for Deep Networks, 2017; by Captum's
LayerIntegratedGradients with Gauss-Legendre nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import LayerIntegratedGradients

from handlers.aims import Aim, Attribution
from handlers.explainers.base import BaseExplainer, Scene


class Explainer(BaseExplainer):
    """Doubles its steps until the values sum to what they explain, if no number was asked for."""

    needs_gradients = True
    complete = True
    first_steps = 12
    most_steps = 192

    def forwards(self, aim: Aim, settings: Any) -> int:
        return int(settings.n_steps or self.first_steps)

    def attribute(self, scene: Scene, settings: Any) -> list[Attribution]:
        if settings.n_steps:
            return self._integrate(scene, settings.n_steps)
        steps = self.first_steps
        results = self._integrate(scene, steps)
        while steps < self.most_steps:
            steps *= 2
            open_ones = [number for number, found in enumerate(results) if not found.converged]
            if not open_ones:
                break
            again = Scene(scene.subject, [scene.aims[number] for number in open_ones])
            for number, better in zip(open_ones, self._integrate(again, steps), strict=True):
                results[number] = better
        return results

    def _integrate(self, scene: Scene, steps: int) -> list[Attribution]:
        captum = LayerIntegratedGradients(scene.score, scene.subject.embeddings)
        found = captum.attribute(
            scene.ids,
            baselines=scene.baseline,
            additional_forward_args=scene.extra,
            n_steps=steps,
            method="gausslegendre",
            internal_batch_size=scene.rows_at_once,
        )
        return scene.attributions(torch.as_tensor(found).sum(-1), shared=False)
