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
    """Doubles its steps until the values sum to what they explain, if no number was asked for.

    It stops early where more steps do not help: in bfloat16 the scores themselves are rounded.
    """

    needs_gradients = True
    complete = True
    first_steps = 5
    most_steps = 160
    good_enough = 0.02
    worth_it = 0.7

    def forwards(self, aim: Aim, settings: Any) -> int:
        return int(settings.n_steps or self.first_steps)

    def attribute(self, scene: Scene, settings: Any) -> list[Attribution]:
        if settings.n_steps:
            return self._integrate(scene, settings.n_steps)
        steps = self.first_steps
        results = self._integrate(scene, steps)
        unsettled = [n for n, found in enumerate(results) if found.miss > self.good_enough]
        while unsettled and steps < self.most_steps:
            steps *= 2
            part = Scene(scene.subject, [scene.aims[number] for number in unsettled])
            better = dict(zip(unsettled, self._integrate(part, steps), strict=True))
            unsettled = [
                number
                for number, found in better.items()
                if self.good_enough < found.miss <= self.worth_it * results[number].miss
            ]
            for number, found in better.items():
                results[number] = min(results[number], found, key=lambda each: each.miss)
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
