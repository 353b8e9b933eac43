"""`model_parallel` and `device_map`: the layers of one model over devices, memory and disk."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongConfig

HOST = ("cpu", "disk")


def spread(handler: HandlerSection, directory: Path) -> dict[str, Any]:
    """Return what `from_pretrained` must be told so that layers are spread as a YAML says.

    Raises:
        WrongConfig: a device is named that this worker does not see, or there is only one.
    """
    named = handler.device_map
    if isinstance(named, dict):
        for device in named.values():
            _require(device)
    elif named is None and _accelerators() < 2:
        raise WrongConfig(
            "handler.model_parallel",
            f"is true, and this worker sees {_accelerators()} accelerators",
            "give it several with parallelType: custom and parallelLevel, set it to false, or for a"
            " model larger than the memory say with handler.device_map what is on cpu and on disk",
        )
    return {"device_map": named or "balanced", "offload_folder": _folder(directory)}


def check_embeddings(module: PreTrainedModel) -> None:
    """Check that the embeddings, and a head that shares their weights, are not on disk.

    Every token would read all of them, and accelerate does not find shared weights there.

    Raises:
        WrongConfig: they are.
    """
    parts = [module.get_input_embeddings(), module.get_output_embeddings()]
    if not module.config.get_text_config().tie_word_embeddings:
        parts.pop()
    if any(part is not None and _device_of(module, part) == "disk" for part in parts):
        raise WrongConfig(
            "handler.device_map",
            "puts the embeddings, or a head that shares their weights, on disk",
            "put both on cpu, or both on one accelerator",
        )


def describe_placement(module: PreTrainedModel) -> str:
    """Return which parts of a module are on which device, for people."""
    places = defaultdict[str, list[str]](list)
    for name, device in _map_of(module).items():
        places[str(device)].append(name or "everything")
    return "; ".join(f"{device} has {_shortened(names)}" for device, names in places.items())


def _map_of(module: PreTrainedModel) -> dict[str, Any]:
    """Return what is where, as transformers spread it; it keeps no map of a single device."""
    return getattr(module, "hf_device_map", None) or {"": module.device}


def _device_of(module: PreTrainedModel, part: torch.nn.Module) -> Any:
    places = _map_of(module)
    (whole, *_) = (name for name, each in module.named_modules() if each is part)
    above = [name for name in places if not name or f"{whole}.".startswith(f"{name}.")]
    return places[max(above, key=len)]


def _shortened(names: list[str]) -> str:
    if len(names) <= 4:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} … {names[-1]} ({len(names)} parts)"


def _accelerators() -> int:
    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def _require(device: int | str) -> None:
    """Check that this worker sees a device.

    Raises:
        WrongConfig: it does not.
    """
    if device in HOST:
        return
    try:
        number = torch.device(device).index or 0
    except RuntimeError:
        number = _accelerators()
    if number >= _accelerators():
        raise WrongConfig(
            "handler.device_map",
            f"names {device}, and this worker sees {_accelerators()} accelerators",
            "use cpu, disk, or numbers from 0 of accelerators that it has",
        )


def _folder(directory: Path) -> Path:
    """Return a folder for weights that cannot be read from the checkpoint as they lie there.

    TorchServe ends workers without asking them, so it is where TorchServe itself tidies up; beside
    a checkpoint that is the user's own, nothing is written.
    """
    unpacked = (directory / "MAR-INF").is_dir() and not directory.is_symlink()
    inside = directory if unpacked and os.access(directory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="offloaded-", dir=inside))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
