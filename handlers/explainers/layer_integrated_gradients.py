"""Integrated gradients of the word embeddings, as Captum's LayerIntegratedGradients has them."""

from __future__ import annotations

from .bases.text import TokenBatch
from .integrated_gradients import IntegratedGradientsExplainer


class Explainer(IntegratedGradientsExplainer):
    """Integrates in the space of embeddings, because there is nothing between two token ids."""

    takes = TokenBatch
