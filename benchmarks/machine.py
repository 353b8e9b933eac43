"""Describe the machine, and measure its peak matrix multiplication speed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

CPUINFO = Path("/proc/cpuinfo")
INSTRUCTIONS = ("avx2", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
SIZES = (256, 512, 1024, 2048)
SECONDS = 1.0  # per size
TOO_SLOW = 0.1  # seconds for one product; larger sizes are skipped


def machine() -> dict[str, object]:
    """Return the processor, its vector instructions, the number of cores and torch threads.

    `load` is the load average of the last minute: results from a busy machine are not valid.
    """
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.exists() else []
    pairs = [line.partition(":") for line in lines]
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    flags = facts.get("flags", "").split()
    return {
        "processor": facts.get("model name", "unknown"),
        "instructions": [flag for flag in INSTRUCTIONS if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
    }


def gemm_peaks(seconds: float = SECONDS) -> dict[str, float]:
    """Return the peak TFLOP/s of a square matrix product in torch by dtype, over several sizes.

    A multiplication and an addition are two operations, also in int8.
    """
    return {
        "float32": _peak(lambda size: _floats(size, torch.float32), seconds),
        "bfloat16": _peak(lambda size: _floats(size, torch.bfloat16), seconds),
        "int8": _peak(_int8, seconds),
    }


def _peak(product: Callable[[int], Callable[[], object]], seconds: float) -> float:
    best = 0.0
    for size in SIZES:
        multiply = product(size)
        multiply()
        shortest, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            multiply()
            shortest = min(shortest, time.perf_counter() - start)
        best = max(best, 2 * size**3 / shortest / 1e12)
        if shortest > TOO_SLOW:
            break
    return best


def _floats(size: int, dtype: torch.dtype) -> Callable[[], object]:
    one, other = (torch.randn(size, size).to(dtype) for _ in range(2))
    return lambda: one @ other


def _int8(size: int) -> Callable[[], object]:
    """Return oneDNN's 8-bit matrix product, the kernel of quantized models in torch."""
    weight = torch.randint(-100, 100, (size, size), dtype=torch.int8)
    rows = torch.randint(0, 200, (size, size), dtype=torch.uint8)
    packed = torch.ops.onednn.qlinear_prepack(weight, [size, size])
    scale = torch.full((size,), 0.01), torch.zeros(size, dtype=torch.long)
    rest: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")
    return lambda: torch.ops.onednn.qlinear_pointwise(rows, 0.02, 64, packed, *scale, *rest)
