"""The processes that torchrun starts for one worker.

Each process receives every request; TorchServe sends the responses of local rank 0.
"""

from __future__ import annotations

import os
from typing import TypeVar

from torch import distributed

Value = TypeVar("Value")


def world_size() -> int:
    """Return how many processes share the model of this worker; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_world_size() -> int:
    """Return how many processes of :func:`world_size` run on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def started_by_torchrun() -> bool:
    """Return whether torchrun started this process."""
    return "LOCAL_WORLD_SIZE" in os.environ


def is_rank0() -> bool:
    """Return whether TorchServe sends the responses of this process."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def agree(decision: bool) -> bool:
    """Return the decision of rank 0 in every process.

    This is a collective operation: each process has to call it in the same place, and equally
    often. So it belongs to the borders of chunks, before the model runs, and not to loops whose
    length depends on time.
    """
    return bool(broadcast_from_rank0(decision))


def broadcast_from_rank0(value: Value) -> Value:
    """Return the value of rank 0 in every process.

    Decisions that depend on random numbers or on time must use it: processes that take different
    branches would deadlock in the next collective operation.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return value
    values = [value]
    distributed.broadcast_object_list(values)
    return values[0]
