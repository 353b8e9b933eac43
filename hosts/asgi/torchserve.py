"""TorchServe behind the application: requests are passed on, and responses as they come."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from yarl import URL

from hf_serve.handlers.compat.torchserve import (
    models_with_exited_workers,
    worker_memory,
    worker_output,
)
from hf_serve.handlers.errors import Overloaded
from hf_serve.handlers.process.resources import available_cores
from hf_serve.hosts.archives import ArchiveError
from hf_serve.hosts.asgi.backend import (
    KNOWN_MAX_AGE,
    Answer,
    Backend,
    ModelEntry,
    ModelRequest,
    State,
    described,
    with_description,
)
from hf_serve.hosts.asgi.errors import NotLoaded
from hf_serve.hosts.asgi.forwarding import TextHeaders, forward, open_client, without
from hf_serve.hosts.asgi.model_pool import Loader, ModelPool
from hf_serve.hosts.asgi.pool_limits import PoolLimits
from hf_serve.hosts.asgi.store_follower import OpenRequests, StoreFollower, manage
from hf_serve.hosts.tracebacks import last_error

# What TorchServe adds to the headers of a request.
OWN_HEADERS = frozenset({b"url_path", b"explain", b"describe", b"x-http-method-override"})
MAX_CONNECTIONS = 1024
ABOUT_SECONDS = 10.0
# How old the states may be while a model loads.
LOADING_MAX_AGE = 0.2
# The end of TorchServe's log in which errors of workers are looked for.
LOG_BYTES = 1 << 20
# What a worker has besides its weights, before it is measured.
WORKER_BYTES = 128 << 20


@dataclass(frozen=True)
class Addresses:
    """Where a TorchServe is.

    Attributes:
        inference: the inference address, such as `http://127.0.0.1:8080`.
        management: the management address.
        metrics: the address of its metrics; empty where it has none.
        workdir: the work folder of `scripts/serve.py` with logs, and errors of models that did not
            load; None where it was not started by it.
    """

    inference: str
    management: str
    metrics: str = ""
    workdir: Path | None = None


class WorkerScaler(Loader):
    """Loads and unloads models of a TorchServe by the number of their workers.

    All versions of a model have workers, or none. A version gets as many as it had before, which is
    the number of its YAML or of a client of the management address.

    Args:
        management: the management address.
        client: sends requests to it.
        store: its model store, where it is on this machine.
        reason: returns why the workers of a model have ended.
    """

    def __init__(
        self,
        management: str,
        client: aiohttp.ClientSession,
        store: Path | None,
        reason: Callable[[str], str],
    ) -> None:
        self._management, self._client = management, client
        self._store, self._reason = store, reason
        self._workers: dict[tuple[str, str], int] = {}
        self._expected: dict[str, int] = {}

    async def load(self, name: str) -> None:
        await self._scale_all(name, lambda key: self._workers.get(key, 1))

    async def unload(self, name: str) -> None:
        await self._scale_all(name, lambda _: 0)

    async def close(self) -> None:
        """Leave the workers to TorchServe, which goes on without this process."""

    async def memory(self, name: str) -> int:
        versions = await self._versions(name)
        workers = [worker for version in versions for worker in version["workers"]]
        pids = [worker["pid"] for worker in workers if worker.get("pid", 0) > 0]
        if measured := await asyncio.to_thread(lambda: sum(map(worker_memory, pids))):
            self._expected[name] = measured
        elif name not in self._expected:
            self._expected[name] = sum(map(self._expected_memory, versions))
        return self._expected[name]

    def _expected_memory(self, version: Mapping[str, Any]) -> int:
        """Return about how much memory a version has that was not loaded yet."""
        archive = self._store / Path(version["modelUrl"]).name if self._store else None
        return WORKER_BYTES + (archive.stat().st_size if archive and archive.is_file() else 0)

    async def _scale_all(self, name: str, workers: Callable[[tuple[str, str]], int]) -> None:
        """Scale each version of a model, and return when its workers have started or ended.

        Raises:
            ArchiveError: workers do not start.
        """
        for version in await self._versions(name):
            key = name, str(version["modelVersion"])
            if running := len(version["workers"]):
                self._workers[key] = max(running, int(version["minWorkers"]))
            count = str(workers(key))
            query = {"min_worker": count, "max_worker": count, "synchronous": "true"}
            path = f"/models/{quote(name, '')}/{quote(key[1], '')}"
            try:
                await manage(self._client, self._management, "PUT", path, query)
            except ArchiveError as error:
                raise ArchiveError(self._reason(name) or str(error)) from None

    async def _versions(self, name: str) -> Sequence[Mapping[str, Any]]:
        path = f"/models/{quote(name, '')}/all"
        found: list[Mapping[str, Any]] = await manage(self._client, self._management, "GET", path)
        return found


class TorchServeBackend(Backend):
    """A running TorchServe.

    Models, versions and defaults are TorchServe's: requests without a version go to the default one
    of the moment, so a rollout needs nothing here.

    Args:
        addresses: where it is.
        answer_seconds: how long a response, or its next part, may take.
        watched: its model store, whose changes it is told of; None for no folder.
        limits: how many models have workers, where the first request of one starts them; None for
            models that keep theirs.
    """

    def __init__(
        self,
        addresses: Addresses,
        answer_seconds: float = 600.0,
        watched: Path | None = None,
        limits: PoolLimits | None = None,
    ) -> None:
        self._at, self._answer_seconds = addresses, answer_seconds
        self._watched, self._limits = watched, limits
        self._pool: ModelPool | None = None
        self._open = OpenRequests()
        on_demand = limits is not None
        self._follower = (
            StoreFollower(watched, addresses.management, self._open, on_demand=on_demand)
            if watched
            else None
        )
        self._following: asyncio.Task[None] | None = None
        self._client: aiohttp.ClientSession
        self._entries: dict[str, ModelEntry] = {}
        self._have_answered = set[str]()
        self._described: dict[tuple[str, str], ModelEntry] = {}
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS)
        self._client = open_client(connector, self._answer_seconds)
        if self._follower:
            self._following = asyncio.create_task(self._follower.follow(self._client))
        if self._limits:
            await self._start_pool(self._limits)

    async def _start_pool(self, limits: PoolLimits) -> None:
        scaler = WorkerScaler(self._at.management, self._client, self._watched, self._last_error)
        self._pool = ModelPool(scaler, limits, available_cores())
        self._entries = await self._ask_models()
        present = [each.name for each in self._entries.values() if each.state == State.READY]
        await self._pool.adopt(present)
        await self._pool.start()

    def _last_error(self, name: str) -> str:
        return _errors(self._at.workdir).get(name, "") if self._at.workdir else ""

    async def close(self) -> None:
        if self._following:
            self._following.cancel()
        if self._pool:
            await self._pool.close()
        await self._client.close()

    @asynccontextmanager
    async def answer(self, request: ModelRequest) -> AsyncIterator[Answer]:
        method, path, headers = _upstream(request)
        url, model = self._at.inference + path, request.route.model
        await self._require_loadable(model)
        # TorchServe says that there is no such model.
        is_known = self._pool and model in await self.models(KNOWN_MAX_AGE)
        loaded = self._pool.loaded(model) if self._pool and is_known else nullcontext()
        with self._open.one(model):
            async with (
                loaded,
                forward(self._client, method, url, headers, request.body, "TorchServe") as answer,
            ):
                yield answer

    async def _require_loadable(self, name: str) -> None:
        """Check that a model has not failed to load.

        TorchServe starts its worker again and again, and keeps requests until their time is over.
        A model that has answered before is waited for: its worker is back in seconds.

        Raises:
            NotLoaded: it has.
        """
        # Without its work folder it is not known why a worker has ended.
        if name in self._have_answered or self._pool or not self._at.workdir:
            return
        with suppress(Overloaded):
            await self.models(KNOWN_MAX_AGE)
        entry = self._entries.get(name)
        if entry and entry.state == State.LOADING and entry.error:
            raise NotLoaded(name, entry.error)

    async def models(self, max_age: float) -> Mapping[str, ModelEntry]:
        may_be_old = max_age >= KNOWN_MAX_AGE
        async with self._asking:
            loads = any(entry.state == State.LOADING for entry in self._entries.values())
            if loads and not self._pool:
                max_age = min(max_age, LOADING_MAX_AGE)
            if time.monotonic() - self._asked_at > max_age:
                try:
                    self._entries = await self._ask_models()
                except Overloaded:
                    # Requests to models that are known do not need the management address.
                    if not (may_be_old and self._entries):
                        raise
                self._asked_at = time.monotonic()
        return {name: self._current(entry) for name, entry in self._entries.items()}

    def _current(self, entry: ModelEntry) -> ModelEntry:
        """Return an entry with the state of the pool, where there is one."""
        if self._pool is None or (entry.state == State.FAILED and entry.error):
            return entry
        name = entry.name
        return replace(entry, state=self._pool.state(name), error=self._pool.error(name))

    async def described_models(self) -> Mapping[str, ModelEntry]:
        entries = await self.models(max_age=1.0)
        described = await asyncio.gather(*map(self._describe, entries.values()))
        return {entry.name: entry for entry in described}

    async def metrics(self) -> bytes:
        if self._pool:
            return self._pool.metrics() + await self._torchserve_metrics()
        memory = await asyncio.to_thread(_memory, list(self._entries.values()))
        return memory + await self._torchserve_metrics()

    async def _torchserve_metrics(self) -> bytes:
        if not self._at.metrics:
            return b""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self._client.get(self._at.metrics) as response:
                if response.status == 200:
                    return await response.read()
        return b""

    async def _ask_models(self) -> dict[str, ModelEntry]:
        """Return the models that TorchServe knows, and those that it was to load.

        Raises:
            Overloaded: the management address does not answer.
        """
        listed = await self._get_json(f"{self._at.management}/models?limit=1000")
        names = [each["modelName"] for each in listed["models"]]
        states = await asyncio.gather(*map(self._entry, names))
        found = {entry.name: entry for entry in states if entry}
        self._have_answered |= {each for each in found if found[each].state == State.READY}
        if self._at.workdir:
            errors = await asyncio.to_thread(_errors, self._at.workdir)
            for name, reason in errors.items():
                if name not in found:
                    found[name] = ModelEntry(name, state=State.FAILED, error=reason)
                elif found[name].state != State.READY:
                    found[name] = replace(found[name], error=reason)
        for name, reason in (self._follower.errors() if self._follower else {}).items():
            entry = found.get(name, ModelEntry(name, state=State.FAILED))
            found[name] = replace(entry, error=reason)
        return found

    async def _entry(self, name: str) -> ModelEntry | None:
        try:
            (default,) = await self._get_json(f"{self._at.management}/models/{quote(name, '')}")
        except Overloaded:  # It was unloaded at this moment.
            return None
        is_ready = any(worker["status"] == "READY" for worker in default["workers"])
        state = State.READY if is_ready else State.LOADING
        pids = tuple(worker["pid"] for worker in default["workers"] if worker.get("pid", 0) > 0)
        return ModelEntry(name, str(default["modelVersion"]), state, pids=pids)

    async def _describe(self, entry: ModelEntry) -> ModelEntry:
        """Return an entry with mode, adapters and limit, which the model itself tells."""
        key = entry.name, entry.version
        if key not in self._described and entry.state == State.READY:
            try:
                info, listed = await asyncio.gather(
                    self._ask_model(entry.name, "info"), self._ask_model(entry.name, "v1/models")
                )
            except Overloaded:
                return entry
            self._described[key] = described(entry, info, listed)
        if known := self._described.get(key):
            return with_description(entry, known)
        return entry

    async def _ask_model(self, name: str, path: str) -> Any:
        url = f"{self._at.inference}/v2/models/{quote(name, '')}/infer"
        return await self._get_json(url, method="POST", headers={"url_path": path})

    async def _get_json(self, url: str, method: str = "GET", **options: Any) -> Any:
        """Return what an address answers.

        Raises:
            Overloaded: it answers nothing of use.
        """
        timeout = aiohttp.ClientTimeout(total=ABOUT_SECONDS)
        try:
            async with self._client.request(
                method, URL(url, encoded=True), timeout=timeout, **options
            ) as response:
                if response.status == 200:
                    return json.loads(await response.read())
                reason = f"answers with status {response.status}"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            reason = f"does not answer ({type(error).__name__})"
        raise Overloaded(f"{url.partition('?')[0]} {reason}; send the request again.")


def _memory(entries: Sequence[ModelEntry]) -> bytes:
    """Return the memory of the workers of each model, where they run on this machine."""
    registry = CollectorRegistry()
    gauge = Gauge(
        "model_memory_bytes", "memory of the workers of a model", ("model",), registry=registry
    )
    for entry in entries:
        if total := sum(map(worker_memory, entry.pids)):
            gauge.labels(entry.name).set(total)
    return bytes(generate_latest(registry))


def _upstream(request: ModelRequest) -> tuple[str, str, TextHeaders]:
    """Return method, address and headers of a request to TorchServe."""
    if request.is_native:
        return request.method, request.address, without(request.headers, ())
    added = list(request.route.headers.items())
    return "POST", _url_below(request), without(request.headers, OWN_HEADERS) + added


def _url_below(request: ModelRequest) -> str:
    """Return TorchServe's address of a path below a model.

    Below /predictions a version comes before the path. KServe's address has no version, and follows
    the default one; the path is in the header in which TorchServe passes it to workers.
    """
    route = request.route
    model = quote(route.model, safe="")
    if not route.version:
        return f"/v2/models/{model}/infer"
    path = quote(route.headers.get("url_path", ""))
    return f"/predictions/{model}/{quote(route.version, safe='')}/{path}"


def _errors(workdir: Path) -> dict[str, str]:
    """Return the last error of each model that did not load, or whose worker ended."""
    errors = dict[str, str]()
    with suppress(OSError, ValueError):
        state = json.loads((workdir / "server.json").read_text(encoding="utf-8"))
        errors |= state.get("left_out", {})
    log = _end_of(workdir / "logs" / "ts_log.log")
    output = worker_output(log)
    for model in models_with_exited_workers(log):
        reason = last_error("\n".join(output.get(model, ())))
        errors[model] = reason or "its worker ended without an error message"
    return errors


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
