"""How weights are stored: one file for each `save_mode`."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from handlers.checkpoints.model_spec import ModelSpec
from handlers.runtime.model import Model


class Format(Protocol):
    """What a file in `formats/` offers."""

    GENERATES: bool

    def load(self, spec: ModelSpec) -> Model:
        """Load a model that was stored in this format."""


def get(save_mode: str) -> Format:
    """Return the module `handlers/formats/<save_mode>.py`."""
    module: Any = import_module(f"handlers.formats.{save_mode}")
    return module
