"""Follows TorchServe's model store: registers new archives and unregisters removed ones."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from hf_serve.hosts.archives import MANIFEST, ArchiveError
from hf_serve.hosts.asgi.backend import ModelEntry, State
from hf_serve.hosts.asgi.served_files import ServedFiles
from hf_serve.hosts.command_line import sentence_of
from hf_serve.hosts.mar_reader import Mar, WrongMar

POLL_SECONDS = 1.0
# A version loads its model, which can take minutes.
LOAD_SECONDS = 600.0
MAR = ".mar"

logger = logging.getLogger(__name__)


class OpenRequests:
    """The requests that are being answered, by model."""

    def __init__(self) -> None:
        self._open: defaultdict[str, set[object]] = defaultdict(set)

    @contextmanager
    def one(self, model: str) -> Iterator[None]:
        """Count a request within the block."""
        request = object()
        self._open[model].add(request)
        try:
            yield
        finally:
            self._open[model].remove(request)

    async def finished(self, model: str) -> None:
        """Wait until the requests that a model has now are answered."""
        requests = set(self._open[model])
        while requests & self._open[model]:
            await asyncio.sleep(0.1)


@dataclass(frozen=True)
class _Version:
    """A version of a model, as the manifest of its archive has it."""

    name: str
    number: str

    @property
    def path(self) -> str:
        return f"/models/{quote(self.name, '')}/{quote(self.number, '')}"


class StoreFollower:
    """Follows a model store.

    Args:
        folder: TorchServe's model store.
        management: TorchServe's management address.
        open_requests: the requests that are being answered.
        on_demand: whether the first request of a model starts its workers.
    """

    def __init__(
        self,
        folder: Path,
        management: str,
        open_requests: OpenRequests,
        *,
        on_demand: bool = False,
    ) -> None:
        self._management, self._open_requests = management, open_requests
        self._least_workers = 0 if on_demand else 1
        self._files = ServedFiles([folder])
        self._versions: dict[Path, _Version] = {}
        self._errors: dict[Path, ModelEntry] = {}
        self._client: aiohttp.ClientSession

    def errors(self) -> Mapping[str, str]:
        """Return what is wrong with archives, by the names of their models."""
        return {entry.name: entry.error for entry in self._errors.values()}

    async def follow(self, client: aiohttp.ClientSession) -> None:
        """Follow the folder until the task is cancelled."""
        self._client = client
        self._versions = await asyncio.to_thread(self._read_all)
        while True:
            await asyncio.sleep(POLL_SECONDS)
            changes = await asyncio.to_thread(self._files.changes)
            for path in changes.removed:
                await self._reported(path, self._unregister(path))
            for path in changes.written:
                if path.suffix == MAR:
                    await self._reported(path, self._register(path))

    def _read_all(self) -> dict[Path, _Version]:
        found = {}
        for path in self._files.known():
            try:
                found[path] = _version_of(path)
            except (ArchiveError, OSError):
                continue  # TorchServe did not load it.
        return found

    async def _reported(self, path: Path, step: Coroutine[None, None, None]) -> None:
        """Run a step; one that fails is logged, and in the list of models."""
        self._errors.pop(path, None)
        try:
            await step
        except Exception as error:  # noqa: BLE001 - the other files are followed
            known = self._versions.get(path)
            reason = sentence_of(error)
            logger.error("%s: %s", path, reason)
            name = known.name if known else path.stem.partition("@")[0]
            self._errors[path] = ModelEntry(name, state=State.FAILED, error=reason)

    async def _register(self, path: Path) -> None:
        """Register the version of an archive; it replaces the one that the file was before.

        Raises:
            ArchiveError: the archive cannot be read, or TorchServe refuses it.
        """
        version = await asyncio.to_thread(_version_of, path)
        query = {
            "url": path.name,
            "model_name": version.name,
            "initial_workers": str(await self._workers(version.name)),
            "synchronous": "true",
        }
        before = self._versions.get(path)
        await self._manage("POST", "/models", query)
        self._versions[path] = version
        logger.info("%s is served as %s, version %s", path, version.name, version.number)
        if before and before.name == version.name:
            await self._manage("PUT", f"{version.path}/set-default")
            await self._open_requests.finished(version.name)
        if before:
            await self._manage("DELETE", before.path)

    async def _unregister(self, path: Path) -> None:
        if version := self._versions.pop(path, None):
            await self._manage("DELETE", version.path)
            logger.info("%s was removed, and is not served any more", path)

    async def _workers(self, name: str) -> int:
        """Return how many workers the version of a model has that is served.

        A new model has one, or none where a request starts it.
        """
        try:
            described = await self._manage("GET", f"/models/{quote(name, '')}")
        except ArchiveError:
            return self._least_workers
        return max(self._least_workers, int(described[0]["minWorkers"]))

    async def _manage(self, method: str, path: str, query: Mapping[str, str] = {}) -> Any:
        return await manage(self._client, self._management, method, path, query)


async def manage(
    client: aiohttp.ClientSession,
    address: str,
    method: str,
    path: str,
    query: Mapping[str, str] = {},
) -> Any:
    """Return the response of TorchServe's management address.

    Raises:
        ArchiveError: it refuses, or does not answer.
    """
    url = URL(address + path, encoded=True).update_query(query)
    timeout = aiohttp.ClientTimeout(total=LOAD_SECONDS)
    try:
        async with client.request(method, url, timeout=timeout) as response:
            body = await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ArchiveError(f"TorchServe did not answer ({type(error).__name__}).") from None
    if response.status >= 400:
        raise ArchiveError(f"TorchServe refuses it: {body.decode('utf-8', 'replace')[:500]}")
    return json.loads(body)


def _version_of(path: Path) -> _Version:
    """Return the version of an archive.

    Raises:
        ArchiveError: it cannot be read.
    """
    try:
        with Mar(path) as mar:
            model = json.loads(mar.read(str(MANIFEST)))["model"]
        return _Version(model["modelName"], str(model.get("modelVersion", "1.0")))
    except WrongMar as error:
        raise ArchiveError(f"{path.parent / str(error)}.") from None
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ArchiveError(f"{path} has no {MANIFEST}, so it is no archive of a model.") from None
