"""The processes that share the model of one worker, and the requests that rank 0 passes on.

torchrun starts the processes of a worker. Each process receives every request, and TorchServe sends
the responses of local rank 0. Processes on other machines get requests from rank 0, as JSON:
nothing of a request is unpickled.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

Value = TypeVar("Value")
# A server may wait for its next request for so long. Where rank 0 ends, the others notice at once.
MAX_IDLE = timedelta(days=365)
BASE64 = "base64"


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


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Seed torch within the block; without a seed, with a random one that all processes share."""
    with torch.random.fork_rng():
        torch.manual_seed(broadcast_from_rank0(secrets.randbits(63)) if seed is None else seed)
        yield


@dataclass(frozen=True)
class SharedRequest:
    """A request as each process gets it.

    Attributes:
        row: the fields of its body: texts and bytes.
    """

    row: Mapping[str, Any]
    headers: Mapping[str, Any]
    streams: bool


class RequestBroadcast:
    """Passes batches of requests from rank 0 to all other processes.

    Create it in every process, when the model is loaded: its process group is a collective
    operation.
    """

    def __init__(self) -> None:
        self._group = distributed.new_group(backend="gloo", timeout=MAX_IDLE)

    def share(self, value: Any) -> Any:
        """Return the value of rank 0, in every process.

        Args:
            value: what JSON has, and bytes; the value of other ranks is ignored.

        Raises:
            RuntimeError: rank 0 has ended.
        """
        if distributed.get_rank():
            return self._receive()
        message = encode_message(value)
        self._broadcast(torch.tensor([len(message)]))
        self._broadcast(torch.frombuffer(message, dtype=torch.uint8))
        return value

    def share_requests(self, requests: Sequence[SharedRequest]) -> None:
        """Pass a batch from rank 0; other processes that have the same requests call it, too."""
        self.share([asdict(each) for each in requests])

    def receive_requests(self) -> list[SharedRequest]:
        """Wait for the next batch of rank 0.

        Raises:
            RuntimeError: rank 0 has ended.
        """
        return [SharedRequest(**each) for each in self.share(None)]

    def _receive(self) -> Any:
        length = torch.zeros(1, dtype=torch.int64)
        self._broadcast(length)
        message = torch.empty(int(length), dtype=torch.uint8)
        self._broadcast(message)
        return decode_message(message.numpy().tobytes())

    def _broadcast(self, tensor: torch.Tensor) -> None:
        distributed.broadcast(tensor, src=0, group=self._group)


def has_other_machines() -> bool:
    """Return whether processes on other machines have parts of the model of this worker."""
    return world_size() > local_world_size()


def encode_message(value: Any) -> bytearray:
    """Return a value as a message."""
    return bytearray(json.dumps(value, default=_as_base64).encode())


def decode_message(message: bytes) -> Any:
    """Return the value of a message."""
    return json.loads(message, object_hook=_from_base64)


def _as_base64(value: Any) -> dict[str, str]:
    return {BASE64: base64.b64encode(value).decode("ascii")}


def _from_base64(value: dict[str, Any]) -> Any:
    return base64.b64decode(value[BASE64]) if value.keys() == {BASE64} else value
