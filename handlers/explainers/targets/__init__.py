"""What an explanation explains: the `ExplanationTarget` of each `mode`, or of modes of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...registry import EXPLANATION_TARGETS

if TYPE_CHECKING:
    from .base import BaseExplanationTarget


def get(mode: str) -> type[BaseExplanationTarget[Any]] | None:
    """Return the `ExplanationTarget` of a mode; None where the mode has no explanations."""
    if mode not in EXPLANATION_TARGETS:
        return None
    target: type[BaseExplanationTarget[Any]] = EXPLANATION_TARGETS.load(mode)
    return target
