"""The device of a worker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch


def pick_device(properties: Mapping[str, Any]) -> torch.device:
    """Return the device that TorchServe's BaseHandler selects: a GPU only if one is assigned.

    NVIDIA GPUs and, with ROCm builds of torch, AMD GPUs are both `cuda` devices.

    Args:
        properties: `system_properties` of TorchServe's context.
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
    """Return the type of the devices that TorchServe gives to workers on a machine like this one.

    Args:
        device_type: `deviceType` of the YAML.
    """
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
