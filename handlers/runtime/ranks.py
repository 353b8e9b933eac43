"""The processes that torchrun starts for one worker: each sees every request, the first answers."""

from __future__ import annotations

import os

from torch import distributed


def count() -> int:
    """Return how many processes share this worker's model; one where torchrun started none."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def by_torchrun() -> bool:
    """Tell whether torchrun started this process."""
    return "LOCAL_WORLD_SIZE" in os.environ


def count_here() -> int:
    """Return how many of the processes that :func:`count` counts run on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_first() -> bool:
    """Tell whether this is the process whose answers TorchServe sends."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def broadcast_from_rank0(value: int) -> int:
    """Return the first process's value, in every process.

    What follows from chance or from a clock must pass here: processes that went different ways
    would wait for each other for ever.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return value
    box = [value]
    distributed.broadcast_object_list(box)
    return box[0]
