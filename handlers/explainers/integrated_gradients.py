"""Integrated gradients of the pixels, from the baseline image to the image."""

from __future__ import annotations

from handlers.explainers._integration import IntegratedGradientsExplainer
from handlers.explainers._patches import PixelBatch


class Explainer(IntegratedGradientsExplainer):
    """Integrates in the space of pixels, whose values are added up for each patch."""

    takes = PixelBatch
