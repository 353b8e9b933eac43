"""The modes of the server of the end to end tests; `test_other_modes.py` serves the others."""

from __future__ import annotations

from hf_serve.handlers.explainers import targets
from hf_serve.scripts.default_modes import default_modes

# The models with their own inference code.
ENDPOINT_HANDLER = "endpoint_handler"
INFERENCE_SCRIPT = "inference_script"


def served_modes() -> list[str]:
    """Return the modes that are served."""
    return default_modes()


def explained_modes() -> list[str]:
    """Return those that have explanations."""
    return list(filter(targets.get, default_modes()))
