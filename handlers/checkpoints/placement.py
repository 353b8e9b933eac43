"""The devices of a model: one device, layers on several devices, or tensor parallelism.

`model_parallel` and `device_map` place layers on several devices, in memory or on disk.
`parallelType: tp` with `torchrun` splits matrices over processes.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..config.handler_section import HandlerSection
from ..config.model_config import ModelConfig
from ..errors import WrongConfig
from ..process import ranks

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

logger = logging.getLogger(__name__)


def placement_arguments(
    config: ModelConfig, checkpoint: PreTrainedConfig, directory: Path, device: torch.device
) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that place the weights.

    Args:
        device: the device of a model that is on a single one.

    Raises:
        WrongConfig: a device is not available, or the model cannot be distributed.
    """
    if config.torchrun:
        check_tensor_parallel(checkpoint, config.torchrun.processes)
        if is_sharded():
            return tensor_parallel_arguments()
    if config.handler.uses_device_map:
        return device_map_arguments(config.handler, directory)
    return {"device_map": {"": device}}


def log_placement(config: ModelConfig, module: PreTrainedModel) -> None:
    """Log the placement of a model that is distributed.

    Raises:
        WrongConfig: the embeddings are on disk.
    """
    if config.torchrun and is_sharded():
        logger.info(
            "Model is split: this is one part of %d, on %s", ranks.world_size(), module.device
        )
    elif config.handler.uses_device_map:
        check_embeddings(module)
        logger.info("Layers are spread: %s", describe_placement(module))


def compute_device(config: ModelConfig, device: torch.device) -> torch.device:
    """Return the device that computes; under torchrun transformers selects one per process."""
    return _own_device() if config.torchrun and is_sharded() else device


def pick_device(properties: Mapping[str, Any]) -> torch.device:
    """Return the device that TorchServe's BaseHandler selects: a GPU only if one is assigned.

    NVIDIA GPUs and, with ROCm builds of torch, AMD GPUs are both `cuda` devices.
    """
    gpu, accelerator = properties.get("gpu_id"), find_accelerator()
    if gpu is None or accelerator is None:
        return torch.device("cpu")
    return torch.device("mps" if accelerator == "mps" else f"{accelerator}:{gpu}")


def find_accelerator() -> str | None:
    """Return the type of this machine's accelerators; None if it has none."""
    if torch.cuda.is_available():
        return "cuda"
    if os.environ.get("TS_IPEX_GPU_ENABLE") == "true" and torch.xpu.is_available():
        return "xpu"
    return "mps" if torch.backends.mps.is_available() else None


def serving_device_type(device_type: str | None) -> str:
    """Return the type of the devices that TorchServe gives to workers on this machine."""
    if device_type == "cpu":
        return "cpu"
    return find_accelerator() or ("cuda" if device_type else "cpu")


def prepare_device(device: torch.device) -> None:
    """Set how torch computes attention and convolutions on an NVIDIA GPU.

    On Hopper and later, torch prefers the attention of cuDNN, which builds a plan for each new
    shape: 10 to 500 ms. The kernels beside it need none. Convolutions in float32 have TF32's 10
    bits by default, unlike matrix products, and answers in float32 would depend on the batch.
    Source: https://github.com/modelscope/FunASR/issues/3704, torch's notes on CUDA semantics
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cudnn.allow_tf32 = False


ALWAYS_AVAILABLE = ("cpu", "disk")


def device_map_arguments(handler: HandlerSection, directory: Path) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that distribute the layers as the YAML specifies.

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


def check_tensor_parallel(config: PreTrainedConfig, processes: int) -> None:
    """Check that transformers can split a model into equal parts.

    Raises:
        WrongConfig: the model type has no tensor parallel plan, or its attention heads cannot be
            divided by the number of processes.
    """
    text = config.get_text_config()
    if not text.base_model_tp_plan:
        raise WrongConfig(
            "parallelType",
            f"is tp, and transformers has no plan to split a {config.model_type} over processes",
            "leave torchrun and parallelType out, or spread its layers with handler.device_map",
        )
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(text, name, None) or processes
        if heads % processes:
            raise WrongConfig(
                "torchrun.nproc-per-node",
                f"is {processes}, and the model's {name} is {heads}",
                f"use a number of processes that divides {heads}",
            )


def is_sharded() -> bool:
    """Return whether this process holds one part of a model.

    Without torchrun, as when an archive is checked, a process holds the whole model.
    """
    return ranks.world_size() > 1


def tensor_parallel_arguments() -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that load the part of this process."""
    from transformers.distributed import DistributedConfig  # noqa: PLC0415 - takes seconds

    # Releases of transformers differ in where they take the plan.
    if "tp_plan" in {field.name for field in fields(DistributedConfig)}:
        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    return {"tp_plan": "auto"}


def _own_device() -> torch.device:
    """Return the device of this process: its accelerator if there is one, else the CPU."""
    accelerator = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    )
    return accelerator or torch.device("cpu")
