"""A stand-in for AWS's `torch_neuron`, with the signature that its documentation gives."""

from __future__ import annotations

from typing import Any

from tests.standins.neuron import compiled


def trace(model: Any, example_inputs: Any, **kwargs: Any) -> Any:
    """Return a traced model that takes the example's shape alone."""
    return compiled(model, example_inputs)
