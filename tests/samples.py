"""Inputs and parameters of each mode, from `tests/modes/`, and the YAML keys of each format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from hf_serve.handlers import formats, tasks
from hf_serve.handlers.config.handler_section import modes, save_modes
from hf_serve.handlers.explainers import targets
from hf_serve.handlers.tasks.bases.text import TextTask
from tests.modes import cases
from tests.modes._cases import FINE, LONG, ODD

__all__ = [
    "FINE",
    "INPUTS",
    "LONG",
    "ODD",
    "PARAMETERS",
    "explained_modes",
    "explained_text_modes",
    "format_params",
    "inputs_of",
    "keys_of",
    "mode_params",
    "requests_of",
    "text_modes",
]

INPUTS: dict[str, list[Any]] = {mode: list(cases(mode).inputs) for mode in modes()}
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    mode: list(cases(mode).parameters) for mode in modes()
}
# Modes with the implementation of text2text_generation.
TEXT_TO_TEXT = ("summarization", "translation")
# The YAML keys of a format whose graphs have a fixed shape.
FIXED_SHAPE: dict[str, Any] = {"batch_size": 4, "max_length": 128}


def text_modes() -> list[str]:
    """Return the modes whose models read tokens of texts."""
    return [mode for mode in modes() if issubclass(tasks.get(mode), TextTask)]


def explained_modes() -> list[str]:
    """Return the modes that have explanations."""
    return [mode for mode in modes() if targets.get(mode)]


def explained_text_modes() -> list[str]:
    """Return the modes whose explanations are those of tokens."""
    return [mode for mode in explained_modes() if mode in text_modes()]


def mode_params(names: Iterable[str]) -> list[Any]:
    """Return modes as a test's parameter; one with the implementation of another is nightly."""
    return [
        pytest.param(name, marks=pytest.mark.nightly if name in TEXT_TO_TEXT else ())
        for name in names
    ]


def format_params() -> list[Any]:
    """Return every `save_mode` as a test's parameter; OpenVINO's are marked."""
    return [
        pytest.param(name, marks=pytest.mark.openvino) if name == "openvino" else name
        for name in save_modes()
    ]


def keys_of(save_mode: str) -> dict[str, Any]:
    """Return the keys of a YAML that selects a format."""
    shape = FIXED_SHAPE if formats.get(save_mode).capabilities.has_fixed_shape else {}
    return {"save_mode": save_mode, **shape}


def inputs_of(mode: str, text: Any) -> Any:
    """Return inputs of a mode that contain a text."""
    return cases(mode).with_text(text)


def requests_of(mode: str) -> list[tuple[Any, dict[str, Any]]]:
    """Return every input with every set of parameters."""
    return [(inputs, given) for given in PARAMETERS[mode] for inputs in INPUTS[mode]]
