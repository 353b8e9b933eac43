"""Puts requests that come one by one into batches, in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Waiting:
    request: Any
    answered: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    since: float = field(default_factory=time.monotonic)


class Batcher:
    """Answers one batch after the other; requests that come meanwhile are the next ones.

    Args:
        answer_batch: answers the requests of a batch.
        size: how many requests a batch has at most.
        seconds: how long the first request of a batch waits for others.
        observe_wait: takes the seconds that a request waited, when its batch begins.
    """

    def __init__(
        self,
        answer_batch: Callable[[list[Any]], Awaitable[None]],
        size: int,
        seconds: float,
        observe_wait: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._answer_batch, self._size, self._seconds = answer_batch, size, seconds
        self._observe_wait = observe_wait
        self._queue = asyncio.Queue[_Waiting]()
        self._task: asyncio.Task[None] | None = None

    async def answer(self, request: Any) -> None:
        """Put a request in a batch, and return when the batch has been answered.

        Raises:
            Exception: what answering the batch raises.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        waiting = _Waiting(request)
        self._queue.put_nowait(waiting)
        await waiting.answered

    def close(self) -> None:
        """Free what answers, once no request waits; a request that comes later starts it again."""
        if self._task:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            batch = [each for each in await self._collect() if not each.answered.cancelled()]
            if not batch:
                continue
            for each in batch:
                self._observe_wait(time.monotonic() - each.since)
            error: Exception | None = None
            try:
                await self._answer_batch([each.request for each in batch])
            except Exception as raised:  # noqa: BLE001 - raised where each request waits
                error = raised
            for each in batch:
                _finish(each.answered, error)

    async def _collect(self) -> list[_Waiting]:
        batch = [await self._queue.get()]
        end = asyncio.get_running_loop().time() + self._seconds
        while len(batch) < self._size:
            if not self._queue.empty():
                batch.append(self._queue.get_nowait())
                continue
            try:
                async with asyncio.timeout_at(end):
                    batch.append(await self._queue.get())
            except TimeoutError:
                break
        return batch


def _finish(answered: asyncio.Future[None], error: Exception | None) -> None:
    if answered.done():  # Nobody waits any more.
        return
    if error:
        answered.set_exception(error)
    else:
        answered.set_result(None)
