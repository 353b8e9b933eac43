"""The deployment of a model: replicas, each with an archive's engine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import serve

from hosts.archives import import_from, open_archive

# Status, content type, headers and body of a response; of a further part, the body counts.
Part = tuple[int, str, dict[str, str], bytes]


class Replica:
    """Loads an archive and answers requests in batches, or side by side.

    Args:
        archive: the path of the archive, on each machine.
        name: the name under which it is served.
        max_request_bytes: the limit of a body without its compression.
        max_response_bytes: the limit of a response.
    """

    def __init__(
        self, archive: str, name: str, max_request_bytes: int, max_response_bytes: int
    ) -> None:
        opened = open_archive(Path(archive))
        import_from(opened.folder)
        # Imports the archive's own `handlers`.
        from hosts.model import ArchiveModel  # noqa: PLC0415

        device = "cuda" if ray.get_gpu_ids() else "cpu"
        self._model = ArchiveModel(
            opened.folder, name, opened.version, device, max_request_bytes, max_response_bytes
        )
        self._name, self._version = name, opened.version
        config = self._model.config
        self._seconds = config.responseTimeout
        side_by_side = self._model.runs_side_by_side
        self._threads = ThreadPoolExecutor(config.batchSize if side_by_side else 1)
        self._running: dict[object, float] = {}
        self._answer_batch.set_max_batch_size(config.batchSize)
        self._answer_batch.set_batch_wait_timeout_s(config.maxBatchDelay / 1000)

    async def answer(
        self, row: Mapping[str, Any], headers: Mapping[str, Any], version: str
    ) -> AsyncIterator[Part]:
        """Yield the parts of the response to a request.

        Args:
            row: the fields of the body, as TorchServe passes them.
            headers: the headers, with TorchServe's `url_path` and `explain`.
            version: the version that the request names; empty for any.
        """
        if version not in ("", self._version):
            yield self._no_such_version(version)
            return
        parts, loop = asyncio.Queue[tuple[Part, bool]](), asyncio.get_running_loop()

        def respond(response: Any, is_last: bool) -> None:
            part = response.status, response.content_type, dict(response.headers), response.body
            loop.call_soon_threadsafe(parts.put_nowait, (part, is_last))

        if self._model.runs_side_by_side:
            deadline = self._model.deadline()
            run = partial(self._model.answer_alone, deadline=deadline)
            running = asyncio.create_task(self._run(run, self._incoming(row, headers, respond)))
        else:
            deadline = None
            batch = self._answer_batch(self._incoming(row, headers, respond))
            running = asyncio.ensure_future(batch)
        try:
            is_last = False
            while not is_last:
                part, is_last = await parts.get()
                yield part
            await running
        except (asyncio.CancelledError, GeneratorExit):  # The client has gone.
            if deadline:
                deadline.expire()
            raise

    @serve.batch  # type: ignore[untyped-decorator]
    async def _answer_batch(self, batch: list[Any]) -> list[None]:
        run = partial(self._model.answer, deadline=self._model.deadline())
        await self._run(run, batch)
        return [None] * len(batch)

    def _no_such_version(self, version: str) -> Part:
        """Return TorchServe's response to a request for another version."""
        body = {
            "code": 404,
            "type": "ModelVersionNotFoundException",
            "message": f"Model version: {version} does not exist for model: {self._name}",
        }
        return 404, "application/json", {}, json.dumps(body).encode()

    def check_health(self) -> None:
        """Raise an error where this process has to be replaced: Ray Serve calls it."""
        if self._model.engine.device_failed:
            raise RuntimeError("The accelerator of this replica failed.")
        longest = time.monotonic() - min(self._running.values(), default=time.monotonic())
        if longest > self._seconds:
            raise RuntimeError(f"A batch runs for more than responseTimeout, {self._seconds} s.")

    async def _run(self, function: Any, argument: Any) -> None:
        """Run a function in a thread; health checks see for how long."""
        key, loop = object(), asyncio.get_running_loop()

        def timed() -> None:
            self._running[key] = time.monotonic()
            try:
                function(argument)
            finally:
                del self._running[key]

        await loop.run_in_executor(self._threads, timed)

    def _incoming(self, row: Any, headers: Any, respond: Any) -> Any:
        from hosts.model import Incoming  # noqa: PLC0415 - see __init__

        return Incoming(row, headers, respond)
