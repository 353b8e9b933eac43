"""`model_parallel` and `device_map`: layers of a model on several devices, in memory or on disk."""

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

ALWAYS_AVAILABLE = ("cpu", "disk")


def device_map_arguments(handler: HandlerSection, directory: Path) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that distribute the layers as the YAML specifies.

    Args:
        handler: the `handler` section.
        directory: the checkpoint.

    Raises:
        WrongConfig: a device is not available, or `model_parallel` is set with a single device.
    """
    device_map = handler.device_map
    if isinstance(device_map, dict):
        for device in device_map.values():
            _check_available(device)
    elif device_map is None and _accelerators() < 2:
        raise WrongConfig(
            "handler.model_parallel",
            f"is true, and this worker sees {_accelerators()} accelerators",
            "assign several with parallelType: custom and parallelLevel, set it to false, or for a"
            " model larger than memory set with handler.device_map what is on cpu and on disk",
        )
    return {"device_map": device_map or "balanced", "offload_folder": _offload_directory(directory)}


def check_embeddings(module: PreTrainedModel) -> None:
    """Check that the embeddings, and a head that shares their weights, are not on disk.

    They would be read from disk for every token, and accelerate does not resolve shared weights
    on disk.

    Raises:
        WrongConfig: one of them is on disk.
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
    """Return the modules on each device as text for the log."""
    devices = defaultdict[str, list[str]](list)
    for name, device in _device_map(module).items():
        devices[str(device)].append(name or "everything")
    return "; ".join(f"{device} has {_abbreviate(names)}" for device, names in devices.items())


def _device_map(module: PreTrainedModel) -> dict[str, Any]:
    """Return the device of each module; transformers keeps no map for a single device."""
    return getattr(module, "hf_device_map", None) or {"": module.device}


def _device_of(module: PreTrainedModel, part: torch.nn.Module) -> Any:
    device_map = _device_map(module)
    (path, *_) = (name for name, each in module.named_modules() if each is part)
    parents = [name for name in device_map if not name or f"{path}.".startswith(f"{name}.")]
    return device_map[max(parents, key=len)]


def _abbreviate(names: list[str]) -> str:
    if len(names) <= 4:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} … {names[-1]} ({len(names)} parts)"


def _accelerators() -> int:
    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def _check_available(device: int | str) -> None:
    if device in ALWAYS_AVAILABLE:
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


def _offload_directory(directory: Path) -> Path:
    """Return a directory for offloaded weights that cannot be read from the checkpoint directly.

    TorchServe kills workers without notice, so the directory is inside the unpacked archive, which
    TorchServe removes. For a checkpoint outside an archive it is a temporary directory.
    """
    unpacked = (directory / "MAR-INF").is_dir() and not directory.is_symlink()
    parent = directory if unpacked and os.access(directory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="offloaded-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
