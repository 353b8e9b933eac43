"""OpenAI's `model` as the choice of a LoRA adapter, as in vLLM.

A model without adapters takes any name there, since the path selects it. With adapters, `model` is
the name of one of them, or that of the model itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from handlers import __version__
from handlers.config.quoting import enumerate_names, quote
from handlers.errors import NotFound
from handlers.protocols.openai.types import ServedModel
from handlers.types.model_info import ModelInfo


class ModelNotFound(NotFound):
    """The name is neither that of a model nor that of one of its adapters."""

    def __init__(self, requested: str, known: Sequence[str]) -> None:
        names = enumerate_names(known)
        super().__init__(f"There is no model {quote(requested)} here; there are {names}.")


def adapter_parameters(model: ModelInfo, requested: str | None) -> dict[str, Any]:
    """Return the parameters of the task that the `model` of a body stands for.

    Raises:
        ModelNotFound: it is neither the model nor one of its adapters.
    """
    if not model.adapters or requested is None:
        return {}
    if requested in (model.name, *model.adapters):
        return {"adapter_id": None if requested == model.name else requested}
    raise ModelNotFound(requested, [model.name, *model.adapters])


def served_name(model: ModelInfo, requested: str | None) -> str:
    """Return the name of what answers: the adapter that a body names, or the model."""
    return requested if requested and requested in model.adapters else model.name


def fingerprint(model: ModelInfo) -> str:
    """Return what tells apart the models, formats and kits whose texts may differ for one seed."""
    parts = (model.name, model.version, model.save_mode, model.dtype, __version__)
    return f"fp_{hashlib.sha256(repr(parts).encode()).hexdigest()[:10]}"


def model_entries(model: ModelInfo) -> dict[str, ServedModel]:
    """Return the entry of the model and of each adapter in the list of models, by their names."""
    adapters: dict[str, ServedModel] = {
        name: {**_entry(name), "parent": model.name} for name in model.adapters
    }
    return {model.name: _entry(model.name), **adapters}


def _entry(name: str) -> ServedModel:
    return {"id": name, "object": "model", "created": 0, "owned_by": "torchserve"}
