"""Explanation methods: `<method>.py` has one class `Explainer`, which wraps a Captum method."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from handlers.config.choices import module_names
from handlers.schemas.explanation_parameters import ExplanationParameters
from handlers.schemas.json_schema import parameter_schemas

if TYPE_CHECKING:
    from handlers.explainers.base import BaseExplainer

METHOD_WITHOUT_GRADIENTS = "feature_ablation"


def get(method: str) -> type[BaseExplainer]:
    """Return the `Explainer` of `handlers/explainers/<method>.py`."""
    explainer: type[BaseExplainer] = import_module(f"handlers.explainers.{method}").Explainer
    return explainer


def explanation_schemas(default_method: str, *, gradients: bool) -> dict[str, Any]:
    """Return the JSON schema of each explanation parameter by name.

    Args:
        default_method: the mode's default method.
        gradients: whether the model's format has gradients; without them fewer methods work.
    """
    methods = [
        name for name in module_names("explainers") if gradients or not get(name).needs_gradients
    ]
    default = default_method if gradients else METHOD_WITHOUT_GRADIENTS
    method = {"enum": [*methods, None], "default": default}
    return {**parameter_schemas(ExplanationParameters, {}), "method": method}
