"""Explanation methods: each is an `Explainer`, which wraps a method of Captum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..registry import EXPLAINERS

if TYPE_CHECKING:
    from .base import AttributionBatch, BaseExplainer


def get(method: str) -> type[BaseExplainer]:
    """Return the `Explainer` of a method."""
    explainer: type[BaseExplainer] = EXPLAINERS.load(method)
    return explainer


def methods_for(batch_type: type[AttributionBatch], *, gradients: bool) -> list[str]:
    """Return the methods that attribute batches of a type.

    Args:
        gradients: whether the model's format has gradients; without them fewer methods work.
    """
    explainers = {name: get(name) for name in sorted(EXPLAINERS)}
    return [
        name
        for name, explainer in explainers.items()
        if issubclass(batch_type, explainer.takes) and (gradients or not explainer.needs_gradients)
    ]
