"""The machine that a benchmark ran on."""

from __future__ import annotations

from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")
INTERESTING = ("avx2", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def machine() -> dict[str, object]:
    """Return the processor, those of its instructions that decide speed, and torch's threads."""
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.exists() else []
    facts = dict((part.strip() for part in line.split(":", 1)) for line in lines if ":" in line)
    flags = facts.get("flags", "").split()
    return {
        "processor": facts.get("model name", "unknown"),
        "instructions": [flag for flag in INTERESTING if flag in flags],
        "threads": torch.get_num_threads(),
    }
