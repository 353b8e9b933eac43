"""What an explanation explains: one file for each `mode`, with one class `ExplanationTarget`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from handlers.config.choices import module_names

if TYPE_CHECKING:
    from handlers.explainers.targets.base import BaseExplanationTarget


def get(mode: str) -> type[BaseExplanationTarget[Any]] | None:
    """Return the `ExplanationTarget` of a mode; None where the mode has no explanations."""
    if mode not in module_names("explainers/targets"):
        return None
    module = import_module(f"handlers.explainers.targets.{mode}")
    target: type[BaseExplanationTarget[Any]] = module.ExplanationTarget
    return target
