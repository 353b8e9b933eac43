"""Archives that are loaded when a request needs them, each in its own process.

The host imports the `handlers` of the kit, and each process the `handlers` of its archive.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hf_serve.handlers.config.documents import parse_json, parse_yaml
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.handlers.process.resources import available_cores
from hf_serve.hosts.archives import MANIFEST, Archive, ArchiveError, config_file, config_name
from hf_serve.hosts.asgi import model_process
from hf_serve.hosts.asgi.backend import Answer, Backend, ModelEntry, ModelRequest, State
from hf_serve.hosts.asgi.errors import UnknownModel
from hf_serve.hosts.asgi.forwarding import forward, open_client, without
from hf_serve.hosts.asgi.model_pool import Loader, ModelPool
from hf_serve.hosts.asgi.model_process import ProcessOptions
from hf_serve.hosts.asgi.pool_limits import PoolLimits
from hf_serve.hosts.asgi.served_files import YAMLS, Changes, NameTaken, ServedFiles, name_of
from hf_serve.hosts.command_line import sentence_of
from hf_serve.hosts.mar_reader import Mar, WrongMar, is_mar

# A load that takes longer has failed, and a process that does not end on SIGTERM is killed.
START_SECONDS, STOP_SECONDS = 600.0, 10.0
# What a process has besides its weights, before it is measured.
PROCESS_BYTES = 64 << 20
MODEL_HEADER = "x-model"
MAX_LINE, MAX_LINES = 1 << 20, 20
# Metrics of the server of a process, which this one has itself.
SERVER_METRICS = ("http_", "process_", "python_")

logger = logging.getLogger(__name__)


class ModelProcess:
    """A process that serves a model at a Unix socket.

    Args:
        python: the program that starts it, such as the launcher of the fork server.
        options: what it serves.
        path: the path of the socket.
        answer_seconds: how long a response, or its next part, may take.
        on_end: is called with the reason when the process ends by itself.
    """

    def __init__(
        self,
        python: Path,
        options: ProcessOptions,
        path: Path,
        answer_seconds: float,
        on_end: Callable[[str], None],
    ) -> None:
        self._python, self._options, self._path = python, options, path
        self._on_end = on_end
        self.client = open_client(aiohttp.UnixConnector(str(path), limit=0), answer_seconds)
        self._lines = deque[str](maxlen=MAX_LINES)
        self._process: asyncio.subprocess.Process
        self._tasks: list[asyncio.Task[None]] = []
        self._pid = 0

    async def start(self) -> None:
        """Start the process, and return when it answers.

        Raises:
            ArchiveError: it does not load its model.
        """
        with socket.socket(socket.AF_UNIX) as listener:
            self._path.unlink(missing_ok=True)
            listener.bind(str(self._path))
            listener.listen(socket.SOMAXCONN)
            self._process = await asyncio.create_subprocess_exec(
                self._python,
                model_process.__file__,
                self._options.to_json(),
                stdin=listener.fileno(),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._options.folder,
                env={**os.environ, "PYTHONPATH": self._options.folder},
                limit=MAX_LINE,
            )
        reading = asyncio.create_task(self._read_log())
        answering = asyncio.create_task(self._answers())
        self._tasks = [reading]
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.wait([reading, answering], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self.stop()
            raise
        finally:
            answering.cancel()
        if reading.done() or not answering.done() or answering.exception():
            await self.stop()
            await reading
            raise ArchiveError(self._reason())
        self._tasks.append(asyncio.create_task(self._watch()))

    async def stop(self) -> None:
        """End the process, and return when it has ended."""
        for task in self._tasks[1:]:
            task.cancel()
        await self.client.close()
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._path.unlink(missing_ok=True)

    def memory(self) -> int:
        """Return its memory: what it has alone, and its part of what it shares (PSS)."""
        try:
            process = psutil.Process(self._pid)
            full = process.memory_full_info()
        except psutil.Error:  # It has ended.
            return 0
        return int(getattr(full, "pss", full.rss))

    async def metrics(self) -> str:
        """Return its metrics in Prometheus' format; empty where it does not answer."""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.client.get("http://model/metrics") as response:
                return await response.text()
        return ""

    async def _answers(self) -> None:
        """Return when the process answers; until then, its socket has the request."""
        if self._process.stdout:
            self._pid = int(await self._process.stdout.readline() or 0)
        async with self.client.get("http://model/v2/health/live"):
            pass

    async def _read_log(self) -> None:
        """Pass on what the process logs, until its end."""
        while self._process.stderr and (line := await self._process.stderr.readline()):
            sys.stderr.write(f"{self._options.name}: {line.decode(errors='replace')}")
            self._lines.append(line.decode(errors="replace").strip())

    async def _watch(self) -> None:
        await self._process.wait()
        await self._tasks[0]
        self._on_end(self._reason())
        await self.client.close()

    def _reason(self) -> str:
        last = next((line for line in reversed(self._lines) if line), "it gave no reason")
        return last if last.endswith(".") else f"Its process ended: {last}."


class ModelProcesses(Loader):
    """Starts and ends the processes of models.

    Args:
        files: the archives.
        python: the program that starts a process.
        folder: the folder of their sockets, whose path is short; it is removed at the end.
        sharing: how many processes share the cores.
        limits: the limits of the bodies of requests and responses.
        answer_seconds: how long a response, or its next part, may take.

    Attributes:
        paths: the files of the models.
        on_end: is called with the name of a model, and why its process ended by itself.
    """

    def __init__(
        self,
        files: ServedFiles,
        python: Path,
        folder: Path,
        sharing: int,
        limits: BodyLimits,
        answer_seconds: float = 600.0,
    ) -> None:
        self._files, self._python, self._folder = files, python, folder
        self._sharing, self._limits, self._answer_seconds = sharing, limits, answer_seconds
        self.paths: dict[str, Path] = {}
        self.on_end: Callable[[str, str], None] = lambda _name, _reason: None
        self._archives: dict[str, Archive] = {}
        self._processes: dict[str, ModelProcess] = {}
        self._expected: dict[str, int] = {}
        self._started = 0

    def forget(self, name: str) -> None:
        """Open the archive of a model again at its next load."""
        self._archives.pop(name, None)
        self._expected.pop(name, None)

    async def load(self, name: str) -> None:
        if name not in self._archives:
            _, self._archives[name] = await asyncio.to_thread(self._files.open, self.paths[name])
        archive = self._archives[name]
        options = ProcessOptions(
            str(archive.folder),
            name,
            archive.version,
            self._sharing,
            self._limits.max_request_bytes,
            self._limits.max_response_bytes,
        )
        self._started += 1
        process = ModelProcess(
            self._python,
            options,
            self._folder / f"{self._started}.sock",
            self._answer_seconds,
            partial(self._end, name),
        )
        await process.start()
        self._processes[name] = process

    def _end(self, name: str, reason: str) -> None:
        self._processes.pop(name, None)
        self.on_end(name, reason)

    async def unload(self, name: str) -> None:
        if process := self._processes.pop(name, None):
            await process.stop()

    async def memory(self, name: str) -> int:
        if process := self._processes.get(name):
            measured = await asyncio.to_thread(process.memory)
            self._expected[name] = measured or self._expected[name]
            return measured
        if name not in self._expected:
            size = await asyncio.to_thread(_size_of, self.paths[name])
            self._expected[name] = size + PROCESS_BYTES
        return self._expected[name]

    def __getitem__(self, name: str) -> ModelProcess:
        """Return the process of a loaded model."""
        return self._processes[name]

    async def close(self) -> None:
        await asyncio.gather(*map(self.unload, list(self._processes)))
        shutil.rmtree(self._folder, ignore_errors=True)

    async def metrics(self) -> bytes:
        """Return the metrics of all processes."""
        texts = await asyncio.gather(*(each.metrics() for each in self._processes.values()))
        return await asyncio.to_thread(_merged, texts)


class OnDemandBackend(Backend):
    """Archives of which each is loaded with its first request.

    Args:
        files: the archives and folders.
        processes: starts and ends processes of `files`.
        limits: how many are loaded.
    """

    def __init__(self, files: ServedFiles, processes: ModelProcesses, limits: PoolLimits) -> None:
        self._files, self._processes, self._limits = files, processes, limits
        self._pool = ModelPool(processes, limits, available_cores())
        processes.on_end = self._pool.mark_ended
        self._entries: dict[Path, ModelEntry] = {}
        self._following: asyncio.Task[None] | None = None

    def read_all(self) -> None:
        """Read what the archives are, without loading them.

        Raises:
            ArchiveError: none of them can be read, or a pinned model is missing.
        """
        for path in self._files.paths():
            self._read(path)
        if all(entry.state == State.FAILED for entry in self._entries.values()):
            raise ArchiveError(" ".join(entry.error for entry in self._entries.values()))
        names = {entry.name for entry in self._entries.values()}
        if missing := sorted(self._limits.pinned - names):
            raise ArchiveError(f"--pin names {', '.join(missing)}, and there is no such model.")

    async def start(self) -> None:
        await self._pool.start()
        if self._files.is_watched:
            self._following = asyncio.create_task(self._files.follow(self._apply))

    async def close(self) -> None:
        if self._following:
            self._following.cancel()
        await self._pool.close()

    async def models(self, max_age: float) -> Mapping[str, ModelEntry]:
        return {entry.name: self._current(entry) for entry in self._entries.values()}

    async def described_models(self) -> Mapping[str, ModelEntry]:
        return await self.models(0.0)

    @asynccontextmanager
    async def answer(self, request: ModelRequest) -> AsyncIterator[Answer]:
        name = self._name(request.route.model)
        headers = without(request.headers, {MODEL_HEADER.encode()})
        headers.append((MODEL_HEADER, name))
        url = f"http://model{request.address}"
        async with self._pool.loaded(name):
            client = self._processes[name].client
            async with forward(
                client, request.method, url, headers, request.body, f"The process of {name}"
            ) as answer:
                yield answer

    async def metrics(self) -> bytes:
        return self._pool.metrics() + await self._processes.metrics()

    def _current(self, entry: ModelEntry) -> ModelEntry:
        if entry.state == State.FAILED:
            return entry
        return replace(
            entry, state=self._pool.state(entry.name), error=self._pool.error(entry.name)
        )

    def _name(self, requested: str) -> str:
        """Return the name of a model; without a name, the name of the only one.

        Raises:
            UnknownModel: no model has this name, or there are several and the request names none.
        """
        names = [each.name for each in self._entries.values() if each.state != State.FAILED]
        if not requested and len(names) == 1:
            return names[0]
        if requested not in names:
            raise UnknownModel(requested, sorted(names))
        return requested

    async def _apply(self, changes: Changes) -> None:
        for path in changes.removed:
            if entry := self._entries.pop(path, None):
                logger.info("%s was removed, and is not served any more", path)
                await self._forget(entry.name)
        for path in changes.written:
            before = self._entries.get(path)
            await asyncio.to_thread(self._read, path)
            if before:
                await self._forget(before.name)

    async def _forget(self, name: str) -> None:
        self._processes.forget(name)
        await self._pool.unload(name)

    def _read(self, path: Path) -> None:
        """Read what an archive is; one that cannot be read is in the list of models."""
        try:
            entry = entry_of(path, self._files)
            self._require_own_name(path, entry.name)
        except Exception as error:  # noqa: BLE001 - the other models are served
            reason = sentence_of(error)
            logger.error("%s cannot be served: %s", path, reason)
            entry = ModelEntry(name_of(path), state=State.FAILED, error=reason)
        else:
            self._processes.paths[entry.name] = path
        self._entries = {**self._entries, path: entry}

    def _require_own_name(self, path: Path, name: str) -> None:
        if name in {each.name for other, each in self._entries.items() if other != path}:
            raise NameTaken(path, name)


def entry_of(path: Path, files: ServedFiles) -> ModelEntry:
    """Return the entry of an archive or a YAML, which is neither unpacked nor packed for that.

    Raises:
        ArchiveError: it cannot be read.
    """
    if path.suffix in YAMLS:
        return _entry(path.stem, "", path.read_bytes())
    if not path.is_dir() and is_mar(path):
        try:
            with Mar(path) as mar:
                model = parse_json(mar.read(str(MANIFEST)))["model"]
                config = mar.read(config_name(model))
        except (WrongMar, KeyError) as error:
            raise ArchiveError(f"{path} is no archive of a model: {error}.") from None
        return _entry(model["modelName"], str(model.get("modelVersion", "1.0")), config)
    name, archive = files.open(path)
    return _entry(name, archive.version, config_file(archive.folder).read_bytes())


def _entry(name: str, version: str, config: bytes) -> ModelEntry:
    document: Any = parse_yaml(config)
    handler = document.get("handler") or {}
    adapters = tuple(handler.get("adapters") or ())
    return ModelEntry(
        name, version, State.UNLOADED, mode=handler.get("mode", ""), adapters=adapters
    )


def _size_of(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file())


def _merged(texts: list[str]) -> bytes:
    """Return the metrics of several processes together; each has the name of its model."""
    families = dict[str, Metric]()
    for text in texts:
        for family in text_string_to_metric_families(text):
            if not family.name.startswith(SERVER_METRICS):
                families.setdefault(family.name, family)
                if families[family.name] is not family:
                    families[family.name].samples += family.samples
    registry = CollectorRegistry()
    registry.register(_Families(families))
    return bytes(generate_latest(registry))


class _Families:
    def __init__(self, families: Mapping[str, Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return list(self._families.values())
