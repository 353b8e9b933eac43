"""The dtype that a model computes in."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CPUINFO = Path("/proc/cpuinfo")
AMX_FLAG = "amx_bf16"
BFLOAT16_FLAGS = frozenset({AMX_FLAG, "avx512_bf16", "bf16"})


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the torch dtype for `handler.dtype`.

    `auto` is bfloat16 if the device supports it in hardware, float16 on older GPUs, and float32
    otherwise.
    """
    import torch  # noqa: PLC0415 - packing asks for the flags of the processor without it

    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type == "cpu":
        return torch.bfloat16 if cpu_has_bfloat16() else torch.float32
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.float16
    return torch.bfloat16


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype, as `handler.dtype` has it."""
    return str(dtype).removeprefix("torch.")


def cpu_has_bfloat16() -> bool:
    """Return whether the processor supports bfloat16 in hardware; emulation is slow."""
    return bool(BFLOAT16_FLAGS & cpu_flags())


def cpu_has_amx() -> bool:
    """Return whether the processor has Intel's matrix extensions."""
    return AMX_FLAG in cpu_flags()


def cpu_flags() -> set[str]:
    """Return the flags of the processor; none where they are not known."""
    if platform.system() != "Linux" or not CPUINFO.exists():
        return set()
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    flags = (line.partition(":")[2] for line in lines if line.lower().startswith(("flags", "feat")))
    return set(next(flags, "").split())
