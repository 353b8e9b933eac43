"""What answers the requests of the application: TorchServe, or models in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hf_serve.hosts.routes import Route

Headers = list[tuple[bytes, bytes]]
# How old the list of models may be for a request to a model that is in it, in seconds.
KNOWN_MAX_AGE = 60.0


class State(StrEnum):
    """Whether a model answers."""

    READY = "ready"
    LOADING = "loading"
    FAILED = "failed"
    # The next request loads it.
    UNLOADED = "unloaded"


@dataclass(frozen=True)
class ModelEntry:
    """A model, as lists of models describe it.

    Attributes:
        name: the name under which it is served.
        version: the version that answers where a request names none.
        state: whether it answers.
        error: the last error of its load or of its worker; empty where it had none.
        mode: its task; empty where it is not known yet.
        adapters: names of its LoRA adapters, which OpenAI's clients may name instead of it.
        pids: the processes of its workers, as TorchServe counts them.
        max_model_len: the maximum number of tokens of a text; None where it is not known or there
            is no limit.
    """

    name: str
    version: str = ""
    state: State = State.READY
    error: str = ""
    mode: str = ""
    adapters: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    max_model_len: int | None = None


def described(entry: ModelEntry, info: Mapping[str, Any], listed: Mapping[str, Any]) -> ModelEntry:
    """Return an entry with mode, adapters and limit.

    Args:
        entry: the entry.
        info: what the model answers at `/info`.
        listed: what it answers at `/v1/models`.
    """
    data = listed.get("data", [])
    return replace(
        entry,
        mode=str(info.get("model_pipeline_tag", "")).replace("-", "_"),
        adapters=tuple(each["id"] for each in data if "parent" in each),
        # An archive of an older version has none.
        max_model_len=data[0].get("max_model_len") if data else None,
    )


def with_description(entry: ModelEntry, known: ModelEntry) -> ModelEntry:
    """Return an entry with the mode, the adapters and the limit of another of the same model."""
    return replace(
        entry, mode=known.mode, adapters=known.adapters, max_model_len=known.max_model_len
    )


@dataclass(frozen=True)
class ModelRequest:
    """A request to a model.

    Attributes:
        method: its method.
        address: path and query as the client has sent them.
        headers: its headers.
        body: its body.
        route: the model, its version, and the headers that TorchServe adds.
        is_native: whether TorchServe has the address, so that it is sent there as it is.
    """

    method: str
    address: str
    headers: Headers
    body: bytes
    route: Route
    is_native: bool


@dataclass(frozen=True)
class Answer:
    """The response of a model, whose parts are sent as they come."""

    status: int
    headers: Headers
    parts: AsyncIterator[bytes] = field(repr=False)


class Backend(ABC):
    """What answers requests."""

    @abstractmethod
    async def start(self) -> None:
        """Begin, in the event loop of the server."""

    @abstractmethod
    async def close(self) -> None:
        """End."""

    @property
    def needs_restart(self) -> bool:
        """Whether a model cannot answer again before this process is replaced."""
        return False

    @abstractmethod
    async def models(self, max_age: float) -> Mapping[str, ModelEntry]:
        """Return the models by name.

        Args:
            max_age: seconds; what is known may be as old as that.
        """

    @abstractmethod
    async def described_models(self) -> Mapping[str, ModelEntry]:
        """Return the models, with modes, adapters and limits."""

    @abstractmethod
    def answer(self, request: ModelRequest) -> AbstractAsyncContextManager[Answer]:
        """Return the response to a request; what it holds is released at the end of the block.

        Raises:
            RequestError: it is not answered.
        """

    @abstractmethod
    async def metrics(self) -> bytes:
        """Return metrics of the models in the text format of Prometheus."""
