"""Requests that come together are answered together, and an error reaches each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hf_serve.hosts.batcher import Batcher

SIZE, LONG = 3, 60.0


class Recorder:
    """Answers batches when they are let through, and keeps them."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.lets_through = asyncio.Event()

    async def answer(self, batch: list[Any]) -> None:
        self.batches.append(batch)
        await self.lets_through.wait()
        if "broken" in batch:
            raise ValueError("broken")


def run(test: Callable[[Recorder], Awaitable[None]]) -> None:
    async def started() -> None:
        async with asyncio.timeout(LONG / 2):
            await test(Recorder())

    asyncio.run(started())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_batch_begins_when_it_is_full() -> None:
    async def test(recorder: Recorder) -> None:
        batcher = Batcher(recorder.answer, SIZE, LONG)
        recorder.lets_through.set()
        await asyncio.gather(*(batcher.answer(number) for number in range(SIZE)))
        assert recorder.batches == [[0, 1, 2]]

    run(test)


def test_a_request_alone_waits_no_longer_than_it_may() -> None:
    async def test(recorder: Recorder) -> None:
        waits: list[float] = []
        batcher = Batcher(recorder.answer, SIZE, 0.01, waits.append)
        recorder.lets_through.set()
        await batcher.answer("fox")
        assert recorder.batches == [["fox"]]
        assert len(waits) == 1

    run(test)


def test_what_comes_while_a_batch_runs_is_the_next_one_without_those_who_left() -> None:
    async def test(recorder: Recorder) -> None:
        batcher = Batcher(recorder.answer, SIZE, 0.0)
        asked = [asyncio.create_task(batcher.answer("first"))]
        await settle()
        asked += [asyncio.create_task(batcher.answer(number)) for number in range(SIZE)]
        await settle()
        asked.pop(1).cancel()
        recorder.lets_through.set()
        await asyncio.gather(*asked)
        assert recorder.batches == [["first"], [1, 2]]

    run(test)


def test_an_error_is_raised_where_each_request_waits_and_the_next_batch_runs() -> None:
    async def test(recorder: Recorder) -> None:
        batcher = Batcher(recorder.answer, 2, LONG)
        recorder.lets_through.set()
        failed = await asyncio.gather(
            batcher.answer("broken"), batcher.answer("fox"), return_exceptions=True
        )
        assert [str(each) for each in failed] == ["broken", "broken"]
        await asyncio.gather(batcher.answer(1), batcher.answer(2))

    run(test)


@pytest.mark.parametrize("size", [1, 2])
def test_no_batch_is_larger_than_it_may_be(size: int) -> None:
    async def test(recorder: Recorder) -> None:
        batcher = Batcher(recorder.answer, size, 0.0)
        recorder.lets_through.set()
        await asyncio.gather(*(batcher.answer(number) for number in range(5)))
        assert max(map(len, recorder.batches)) == size
        assert sorted(each for batch in recorder.batches for each in batch) == [0, 1, 2, 3, 4]

    run(test)
