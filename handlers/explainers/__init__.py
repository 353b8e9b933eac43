"""Explanation methods: `<method>.py` has one class `Explainer`, which wraps a Captum method."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from handlers.config.choices import module_names

if TYPE_CHECKING:
    from handlers.explainers.base import AttributionBatch, BaseExplainer


def get(method: str) -> type[BaseExplainer]:
    """Return the `Explainer` of `handlers/explainers/<method>.py`."""
    explainer: type[BaseExplainer] = import_module(f"handlers.explainers.{method}").Explainer
    return explainer


def methods_for(batch_type: type[AttributionBatch], *, gradients: bool) -> list[str]:
    """Return the methods that attribute batches of a type.

    Args:
        batch_type: the batches of a kind of rows.
        gradients: whether the model's format has gradients; without them fewer methods work.
    """
    explainers = {name: get(name) for name in module_names("explainers")}
    return [
        name
        for name, explainer in explainers.items()
        if issubclass(batch_type, explainer.takes) and (gradients or not explainer.needs_gradients)
    ]
