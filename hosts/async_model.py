"""A loaded archive behind an event loop: threads answer, and responses are read part by part.

This module imports nothing of `handlers`: what it passes between processes are plain values.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from hf_serve.hosts.defaults import QUEUE_SIZE

# Status, content type, headers and body of a response; of a further part, the body counts.
Part = tuple[int, str, dict[str, str], bytes]
# Takes a request, and returns when the batch that it was put in has been answered.
AnswerInBatch = Callable[[Any], Awaitable[Any]]


class AsyncModel:
    """A model that answers requests in batches, or side by side.

    Args:
        model: the `ArchiveModel`, whose module imports the handlers of the archive.

    Attributes:
        batch_size: how many requests a batch has at most.
        batch_seconds: how long a request waits for others.
        max_open: how many requests are running or wait at most.
    """

    def __init__(self, model: Any, name: str, version: str) -> None:
        self._model, self._name, self._version = model, name, version
        config = model.config
        self.batch_size: int = config.batchSize
        self.batch_seconds: float = config.maxBatchDelay / 1000
        self.max_open: int = (config.jobQueueSize or QUEUE_SIZE) + config.batchSize
        self._seconds = config.responseTimeout
        self._threads = ThreadPoolExecutor(self.batch_size if model.runs_side_by_side else 1)
        # One explanation at a time. Those that wait hold no thread of the others.
        self._explaining = ThreadPoolExecutor(1) if model.runs_side_by_side else self._threads
        self._running: dict[object, float] = {}

    async def answer(
        self,
        row: Mapping[str, Any],
        headers: Mapping[str, Any],
        version: str,
        answer_in_batch: AnswerInBatch,
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of the response to a request.

        Args:
            row: the fields of the body, as TorchServe passes them.
            version: the version that the request names; empty for any.
            answer_in_batch: puts the request in a batch, which comes to :meth:`answer_batch`.
        """
        if version not in ("", self._version):
            yield self._no_such_version(version)
            return
        parts, loop = asyncio.Queue[tuple[Part, bool] | None](), asyncio.get_running_loop()

        def respond(response: Any, is_last: bool) -> None:
            part = response.status, response.content_type, dict(response.headers), response.body
            loop.call_soon_threadsafe(parts.put_nowait, (part, is_last))

        incoming = self._model.incoming(row, headers, respond)
        if self._model.runs_side_by_side:
            deadline = self._model.deadline()
            run = partial(self._model.answer_alone, deadline=deadline)
            threads = self._explaining if self._model.explains(incoming) else self._threads
            running = asyncio.ensure_future(self._run(run, incoming, threads))
        else:
            deadline = None
            running = asyncio.ensure_future(answer_in_batch(incoming))
        running.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while following := await parts.get():
                part, is_last = following
                yield part
                if is_last:  # Others of its batch may still run.
                    return
            await running  # It raises its error, if it ended without a last part.
        except (asyncio.CancelledError, GeneratorExit):  # The client has gone.
            if deadline:
                deadline.expire()
            raise

    async def answer_batch(self, batch: list[Any]) -> None:
        """Answer the requests of a batch together."""
        answer = partial(self._model.answer, deadline=self._model.deadline())
        await self._run(answer, batch, self._threads)

    def check_health(self) -> None:
        """Raise an error where this process has to be replaced.

        Raises:
            RuntimeError: the model fails, or a batch hangs.
        """
        if self._model.has_failed:
            raise RuntimeError(
                "The accelerator or the engine failed, or the model no longer answers its sample."
            )
        longest = time.monotonic() - min(self._running.values(), default=time.monotonic())
        if longest > self._seconds:
            raise RuntimeError(f"A batch runs for more than responseTimeout, {self._seconds} s.")

    async def _run(self, function: Any, argument: Any, threads: ThreadPoolExecutor) -> None:
        """Run a function in one of some threads; health checks see for how long."""
        key, loop = object(), asyncio.get_running_loop()

        def timed() -> None:
            self._running[key] = time.monotonic()
            try:
                function(argument)
            finally:
                del self._running[key]

        await loop.run_in_executor(threads, timed)

    def _no_such_version(self, version: str) -> Part:
        """Return TorchServe's response to a request for another version, in both shapes."""
        sentence = f"Model version: {version} does not exist for model: {self._name}"
        body = {
            "code": 404,
            "type": "ModelVersionNotFoundException",
            "message": sentence,
            "error": sentence,
        }
        return 404, "application/json", {}, json.dumps(body).encode()
