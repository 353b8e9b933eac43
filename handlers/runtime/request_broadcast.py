"""The requests of a batch, for processes on other machines that have parts of the model.

TorchServe passes each request to the processes on its own machine. Those on other machines get it
from rank 0, as JSON: nothing of a request is unpickled.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from handlers.runtime import ranks

# A server may wait for its next request for so long. Where rank 0 ends, the others notice at once.
MAX_IDLE = timedelta(days=365)
BASE64 = "base64"


@dataclass(frozen=True)
class SharedRequest:
    """A request as each process gets it.

    Attributes:
        row: the fields of its body: texts and bytes.
        headers: its headers.
        streams: whether parts of its response can be sent.
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
            value: what JSON has, and bytes; that of other ranks is not looked at.

        Raises:
            RuntimeError: rank 0 has ended.
        """
        if distributed.get_rank():
            return self._receive()
        message = encode(value)
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
        return decode(message.numpy().tobytes())

    def _broadcast(self, tensor: torch.Tensor) -> None:
        distributed.broadcast(tensor, src=0, group=self._group)


def has_other_machines() -> bool:
    """Return whether processes on other machines have parts of the model of this worker."""
    return ranks.world_size() > ranks.local_world_size()


def encode(value: Any) -> bytearray:
    """Return a value as a message."""
    return bytearray(json.dumps(value, default=_as_base64).encode())


def decode(message: bytes) -> Any:
    """Return the value of a message."""
    return json.loads(message, object_hook=_from_base64)


def _as_base64(value: Any) -> dict[str, str]:
    return {BASE64: base64.b64encode(value).decode("ascii")}


def _from_base64(value: dict[str, Any]) -> Any:
    return base64.b64decode(value[BASE64]) if value.keys() == {BASE64} else value
