"""Each embedding times its gradient: one forward and one backward a batch.

Shrikumar, Greenside and Kundaje: Learning Important Features Through Propagating Activation
Differences, 2017; by Captum's LayerGradientXActivation.
"""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import LayerGradientXActivation

from handlers.aims import Aim, Attribution
from handlers.explainers.base import BaseExplainer, Scene, differentiable


class Explainer(BaseExplainer):
    """The fast method; its values do not sum to anything."""

    needs_gradients = True
    complete = False

    def forwards(self, aim: Aim, settings: Any) -> int:
        return 1

    def attribute(self, scene: Scene, settings: Any) -> list[Attribution]:
        with differentiable(scene.embeddings):
            captum = LayerGradientXActivation(scene.score, scene.embeddings)
            found = captum.attribute(scene.ids, additional_forward_args=scene.extra)
        values = torch.as_tensor(found).sum(-1)
        return scene.attributions(values, scene.ends(), shared=False)
