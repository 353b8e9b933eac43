"""What the protocol's GETs tell: that there is a server, and what a model takes and gives."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from handlers.protocols.items import layouts_of
from handlers.protocols.open_inference.body import OUTPUT
from handlers.protocols.open_inference.datatypes import BYTES
from handlers.schemas.model_info import ModelInfo


def tell_server(_model: ModelInfo) -> dict[str, Any]:
    """Return what server this is, and which extensions of the protocol it knows."""
    return {
        "name": "torchserve",
        "version": version("torchserve"),
        "extensions": ["binary_tensor_data"],
    }


def tell_models(model: ModelInfo) -> dict[str, Any]:
    """Return the names of the models behind this path."""
    return {"models": [model.name]}


def tell_model(model: ModelInfo) -> dict[str, Any]:
    """Return what a model takes and gives; parameters may be tensors as well, and are not told."""
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": f"transformers_{model.save_mode}",
        "inputs": [
            {"name": name, "datatype": BYTES, "shape": [-1]} for name in layouts_of(model.mode)[0]
        ],
        "outputs": [{"name": OUTPUT, "datatype": BYTES, "shape": [-1, 1]}],
    }


def tell_ready(model: ModelInfo) -> dict[str, Any]:
    """Return that a model is ready: what is not loaded cannot answer."""
    return {"name": model.name, "ready": True}


METADATA: dict[str, Callable[[ModelInfo], dict[str, Any]]] = {
    "server": tell_server,
    "live": lambda _model: {"live": True},
    "ready": lambda _model: {"ready": True},
    "models": tell_models,
    "model": tell_model,
    "model_ready": tell_ready,
}
