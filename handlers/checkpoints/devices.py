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
    gpu = properties.get("gpu_id")
    if gpu is None:
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device(f"cuda:{gpu}")
    if os.environ.get("TS_IPEX_GPU_ENABLE") == "true" and torch.xpu.is_available():
        return torch.device(f"xpu:{gpu}")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")
