"""Which models are loaded: each with its first request, and the least recently used one leaves."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hf_serve.handlers.errors import Overloaded
from hf_serve.hosts.asgi.backend import State
from hf_serve.hosts.asgi.errors import NotLoaded
from hf_serve.hosts.asgi.pool_limits import PoolLimits
from hf_serve.hosts.command_line import sentence_of

# A model that did not load is tried again with a request that comes later than this.
RETRY_SECONDS = 10.0
CHECK_SECONDS = 1.0
# Memory is measured less often: the kernel walks the pages of each process.
MEASURE_SECONDS = 10.0
BUCKETS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)

logger = logging.getLogger(__name__)


class NotLoadedInTime(Overloaded):
    """A model has not loaded in the time that a request waits."""

    def __init__(self, model: str, seconds: float) -> None:
        super().__init__(
            f"{model} has not loaded in {seconds:g} s: it still loads, or the models in its place"
            " still answer; send the request again."
        )


class TooLarge(Exception):
    """A model has more memory than all models may have."""

    def __init__(self, needed: int, limit: int) -> None:
        super().__init__(
            f"it needs about {needed >> 20} MiB, and with those that stay loaded all models may"
            f" have {limit >> 20} MiB; raise --models-memory, or pin fewer models."
        )


class Loader(ABC):
    """Loads and unloads models for a pool."""

    @abstractmethod
    async def load(self, name: str) -> None:
        """Load a model.

        Raises:
            Exception: it does not load.
        """

    @abstractmethod
    async def unload(self, name: str) -> None:
        """Unload a model that answers no request, and return when its memory is free."""

    @abstractmethod
    async def close(self) -> None:
        """Unload what would be left when this process ends."""

    @abstractmethod
    async def memory(self, name: str) -> int:
        """Return the bytes of memory of a model; before its load, about how many it will have."""


class Stage(StrEnum):
    """What a pool does with a model. Those that are not unloaded have memory."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"


class Reason(StrEnum):
    """Why a model is unloaded."""

    LEAST_RECENTLY_USED = "least_recently_used"
    IDLE = "idle"
    ENDED = "ended"
    CHANGED = "changed"


@dataclass(eq=False)
class _Model:
    """A model of a pool.

    Attributes:
        waiting: requests that wait for it.
        running: requests that it answers.
        used: when a request began or ended last.
        is_leaving: whether new requests wait, as another model takes its place.
        failed_at: when it did not load.
    """

    name: str
    stage: Stage = Stage.UNLOADED
    waiting: int = 0
    running: int = 0
    used: float = 0.0
    is_leaving: bool = False
    loading: asyncio.Task[None] | None = None
    memory: int = 0
    error: str = ""
    failed_at: float = -math.inf

    @property
    def has_failed(self) -> bool:
        return bool(self.error) and time.monotonic() - self.failed_at < RETRY_SECONDS


class ModelPool:
    """Has models loaded while requests need them.

    Args:
        loader: loads and unloads them.
        limits: how many are loaded.
        slots: how many load at the same time.
    """

    def __init__(self, loader: Loader, limits: PoolLimits, slots: int) -> None:
        self._loader, self._limits = loader, limits
        self._models: dict[str, _Model] = {}
        self._slots, self._making_room = asyncio.Semaphore(slots), asyncio.Lock()
        self._changed = asyncio.Event()
        self._checking: asyncio.Task[None] | None = None
        self._measured = -math.inf
        self._metrics = _Metrics()

    async def start(self) -> None:
        """Load the pinned models, and unload others when they are idle."""
        self._checking = asyncio.create_task(self._check())
        await asyncio.gather(*map(self._preload, self._limits.pinned))

    async def adopt(self, names: Iterable[str]) -> None:
        """Count models as loaded that were loaded before, and unload those over the limits."""
        for name in names:
            model = self._model(name)
            model.memory = await self._loader.memory(name)
            model.stage, model.used = Stage.LOADED, time.monotonic()
        most = self._limits.models_max
        while (idle := self._idle()) and (
            self._is_over_memory() or (most and len(self._present()) > most)
        ):
            await self._unload(idle[0], Reason.LEAST_RECENTLY_USED)

    async def close(self) -> None:
        """End loads and the loader."""
        if self._checking:
            self._checking.cancel()
        loading = [each.loading for each in self._models.values() if each.loading]
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        await self._loader.close()

    def state(self, name: str) -> State:
        """Return whether a model answers at once."""
        model = self._model(name)
        if model.has_failed:
            return State.FAILED
        if model.stage == Stage.LOADED:
            return State.READY
        return State.LOADING if model.loading else State.UNLOADED

    def error(self, name: str) -> str:
        """Return why a model did not load, or ended; empty where it did not."""
        return self._model(name).error

    def metrics(self) -> bytes:
        """Return the metrics of the models in Prometheus' format."""
        return self._metrics.text(self._models.values())

    @asynccontextmanager
    async def loaded(self, name: str) -> AsyncIterator[None]:
        """Have a model loaded within the block.

        Raises:
            NotLoaded: it does not load.
            NotLoadedInTime: it does not load in time; the load goes on.
        """
        model = self._model(name)
        model.waiting += 1
        try:
            async with asyncio.timeout(self._limits.load_seconds):
                await self._wait_until_loaded(model)
            model.running += 1
        except TimeoutError:
            raise NotLoadedInTime(name, self._limits.load_seconds) from None
        finally:
            model.waiting -= 1
            self._changed.set()
        model.used = time.monotonic()
        try:
            yield
        finally:
            model.running -= 1
            model.used = time.monotonic()
            self._changed.set()

    def mark_ended(self, name: str, reason: str) -> None:
        """Note that a loaded model has ended by itself; the next request loads it again."""
        model = self._model(name)
        if model.stage == Stage.LOADED:
            model.stage, model.error, model.memory = Stage.UNLOADED, reason, 0
            self._metrics.unloads.labels(name, Reason.ENDED).inc()
            self._changed.set()

    async def unload(self, name: str) -> None:
        """Unload a model whose file has changed, once it has answered its requests.

        New requests wait, and load it again.
        """
        model = self._model(name)
        model.error = ""
        if model.loading:
            await asyncio.wait([model.loading])
        if model.stage != Stage.LOADED:
            return
        model.is_leaving = True
        while model.running:
            await self._next_change()
        model.is_leaving = False
        if model.stage == Stage.LOADED:
            await self._unload(model, Reason.CHANGED)

    def _model(self, name: str) -> _Model:
        if name not in self._models:
            self._models[name] = _Model(name)
        return self._models[name]

    async def _preload(self, name: str) -> None:
        try:
            async with self.loaded(name):
                pass
        except Overloaded as error:
            logger.error("%s", error)

    async def _wait_until_loaded(self, model: _Model) -> None:
        """Return when a model is loaded; the caller then runs without another wait."""
        began = time.monotonic()
        while model.stage != Stage.LOADED or model.is_leaving:
            if model.is_leaving:
                await self._next_change()
                continue
            if model.has_failed or model.failed_at > began:
                raise NotLoaded(model.name, model.error)
            if model.loading is None:
                model.loading = asyncio.create_task(self._load(model))
            await asyncio.shield(model.loading)

    async def _load(self, model: _Model) -> None:
        began = time.monotonic()
        try:
            while model.stage == Stage.UNLOADING:
                await self._next_change()
            if not await self._has_room(model):
                return
            async with self._slots:
                await self._loader.load(model.name)
            model.memory = await self._loader.memory(model.name)
            model.stage, model.error = Stage.LOADED, ""
            self._metrics.loads.labels(model.name).observe(time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - the other models are served
            model.error, model.failed_at = sentence_of(error), time.monotonic()
            logger.error("%s did not load: %s", model.name, model.error)
        finally:
            if model.stage == Stage.LOADING:
                model.stage = Stage.UNLOADED
            model.used, model.loading = time.monotonic(), None
            self._changed.set()

    async def _has_room(self, model: _Model) -> bool:
        """Unload others until there is room for a model; False once no request waits for it.

        Raises:
            TooLarge: it is larger than all models may be.
        """
        async with self._making_room:
            model.memory = await self._loader.memory(model.name)
            try:
                while not self._fits(model):
                    if not model.waiting:
                        return False
                    await self._make_room(model)
            finally:
                for each in self._models.values():
                    each.is_leaving = False
            model.stage = Stage.LOADING
            return True

    def _fits(self, model: _Model) -> bool:
        most = self._limits.models_max
        has_place = not most or len(self._present()) < most
        return has_place and not self._is_over_memory(model.memory)

    async def _make_room(self, model: _Model) -> None:
        """Unload the model that was least recently used, or wait for a change.

        Where all models answer requests, new requests of the least recently used one wait.
        """
        if all(each.name in self._limits.pinned for each in self._present()):
            raise TooLarge(model.memory, self._limits.memory_bytes)
        victims = [each for each in self._movable() if each.is_leaving or not each.waiting]
        victims.sort(key=lambda each: (each.running > 0, not each.is_leaving, each.used))
        victim = next(iter(victims), None)
        if victim and not victim.running:
            await self._unload(victim, Reason.LEAST_RECENTLY_USED)
            return
        if victim:
            victim.is_leaving = True
        await self._next_change()

    async def _unload(self, model: _Model, reason: Reason) -> None:
        model.stage = Stage.UNLOADING
        logger.info("%s is unloaded (%s)", model.name, reason)
        self._metrics.unloads.labels(model.name, reason).inc()
        try:
            await self._loader.unload(model.name)
        finally:
            model.stage = Stage.UNLOADED
            self._changed.set()

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self._unload_idle()
            if time.monotonic() - self._measured > MEASURE_SECONDS:
                await self._measure()
                self._measured = time.monotonic()

    async def _unload_idle(self) -> None:
        limit = self._limits.keep_alive
        # A request can come while another model is unloaded.
        while idle := [each for each in self._idle() if 0 <= limit < time.monotonic() - each.used]:
            await self._unload(idle[0], Reason.IDLE)

    async def _measure(self) -> None:
        """Measure the memory of the models, and unload idle ones where it is over the limit."""
        loaded = [each for each in self._models.values() if each.stage == Stage.LOADED]
        for each in loaded:
            each.memory = await self._loader.memory(each.name)
        while self._is_over_memory() and (idle := self._idle()):
            least_recently_used = min(idle, key=lambda each: each.used)
            await self._unload(least_recently_used, Reason.LEAST_RECENTLY_USED)

    def _is_over_memory(self, more: int = 0) -> bool:
        """Return whether the models and some more bytes are over the limit."""
        limit = self._limits.memory_bytes
        return bool(limit) and sum(each.memory for each in self._present()) + more > limit

    def _present(self) -> list[_Model]:
        """Return the models that have memory."""
        return [each for each in self._models.values() if each.stage != Stage.UNLOADED]

    def _movable(self) -> list[_Model]:
        """Return the loaded models that are not pinned."""
        pinned = self._limits.pinned
        loaded = (each for each in self._models.values() if each.stage == Stage.LOADED)
        return [each for each in loaded if each.name not in pinned]

    def _idle(self) -> list[_Model]:
        return [each for each in self._movable() if not each.running and not each.waiting]

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class _Metrics:
    """Loads, unloads and memory of the models of a pool."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.loads = Histogram(
            "model_load_seconds",
            "time until a model was loaded, with the wait for room",
            ("model",),
            registry=self._registry,
            buckets=BUCKETS,
        )
        self.unloads = Counter(
            "model_unloads", "unloaded models", ("model", "reason"), registry=self._registry
        )
        self._loaded = Gauge(
            "model_loaded", "1 for a model that is loaded", ("model",), registry=self._registry
        )
        self._memory = Gauge(
            "model_memory_bytes", "memory of a loaded model", ("model",), registry=self._registry
        )

    def text(self, models: Iterable[_Model]) -> bytes:
        """Return the metrics in Prometheus' format."""
        self._memory.clear()
        for each in models:
            self._loaded.labels(each.name).set(each.stage == Stage.LOADED)
            if each.stage == Stage.LOADED:
                self._memory.labels(each.name).set(each.memory)
        return bytes(generate_latest(self._registry))
