"""Why a model answered as it did: one file a Captum method family, each with one `Explainer`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handlers.explainers.base import BaseExplainer


def explainer_class(method: str) -> type[BaseExplainer]:
    """Return the `Explainer` of `handlers/explainers/<method>.py`."""
    explainer: type[BaseExplainer] = import_module(f"handlers.explainers.{method}").Explainer
    return explainer
