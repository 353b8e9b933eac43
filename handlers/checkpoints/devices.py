"""Which device a worker computes on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch


def pick_device(properties: Mapping[str, Any]) -> torch.device:
    """Return the device that TorchServe's BaseHandler would pick: a GPU only when one is assigned.

    CUDA builds of torch serve NVIDIA's GPUs and ROCm builds AMD's, both as `cuda`.
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
