"""A model behind an event loop is healthy until it fails, or a batch hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from hf_serve.hosts.async_model import AsyncModel, Part
from tests.sentences import refused
from tests.waiting import wait_for


class Model:
    """Answers each request with its row, once it may."""

    runs_side_by_side = False

    def __init__(self, response_timeout: float) -> None:
        self.config = SimpleNamespace(
            batchSize=2, jobQueueSize=None, maxBatchDelay=50, responseTimeout=response_timeout
        )
        self.has_failed = False
        self.may_answer = threading.Event()
        self.began = threading.Event()

    def incoming(self, row: Mapping[str, Any], _headers: Any, respond: Any) -> Any:
        return row, respond

    def deadline(self) -> None:
        return None

    def answer(self, batch: list[Any], deadline: None) -> None:
        self.began.set()
        assert self.may_answer.wait(60)
        for row, respond in batch:
            respond(
                SimpleNamespace(status=200, content_type="", headers={}, body=row["body"]), True
            )


async def ask(served: AsyncModel, version: str = "") -> list[Part]:
    async def answer_in_batch(incoming: Any) -> None:
        await served.answer_batch([incoming])

    parts = served.answer({"body": b"fox"}, {}, version, answer_in_batch)
    return [part async for part in parts]


def test_a_request_for_its_version_is_answered_and_for_another_is_not() -> None:
    model = Model(response_timeout=60)
    model.may_answer.set()
    served = AsyncModel(model, "fox", "1.0")
    assert asyncio.run(ask(served, "1.0")) == [(200, "", {}, b"fox")]
    ((status, _, _, body),) = asyncio.run(ask(served, "2.0"))
    assert status == 404
    assert b"Model version: 2.0 does not exist for model: fox" in body


class SideBySide(Model):
    """Answers each request in a thread of its own; explanations once they may."""

    runs_side_by_side = True

    def __init__(self) -> None:
        super().__init__(response_timeout=60)
        self.explaining = 0
        self.most = 0

    def explains(self, incoming: Any) -> bool:
        return bool(incoming[0]["body"] == b"explain")

    def answer_alone(self, incoming: Any, deadline: None) -> None:
        if not self.explains(incoming):
            incoming[1](SimpleNamespace(status=200, content_type="", headers={}, body=b"x"), True)
            return
        self.explaining += 1
        self.most = max(self.most, self.explaining)
        self.answer([incoming], None)
        self.explaining -= 1


def test_explanations_that_wait_hold_no_thread_of_other_requests() -> None:
    model = SideBySide()
    served = AsyncModel(model, "fox", "1.0")

    async def send(body: bytes) -> list[Part]:
        async def never(_: Any) -> None:
            raise AssertionError

        return [part async for part in served.answer({"body": body}, {}, "", never)]

    async def test() -> None:
        explanations = [asyncio.create_task(send(b"explain")) for _ in range(3 * served.batch_size)]
        assert await asyncio.to_thread(model.began.wait, 60)
        async with asyncio.timeout(60):
            assert await send(b"predict") == [(200, "", {}, b"x")]
        assert not any(each.done() for each in explanations)
        model.may_answer.set()
        assert await asyncio.gather(*explanations) == [[(200, "", {}, b"explain")]] * 6

    asyncio.run(test())
    assert model.most == 1


def test_a_model_that_failed_is_not_healthy() -> None:
    model = Model(response_timeout=60)
    served = AsyncModel(model, "fox", "1.0")
    served.check_health()
    model.has_failed = True
    with refused(RuntimeError):
        served.check_health()


def test_a_batch_that_hangs_is_noticed_until_it_ends() -> None:
    model = Model(response_timeout=0)
    served = AsyncModel(model, "fox", "1.0")

    async def test() -> None:
        asked = asyncio.create_task(ask(served))
        await asyncio.to_thread(model.began.wait, 60)
        with refused(RuntimeError, "responseTimeout"):
            served.check_health()
        model.may_answer.set()
        await asked

    asyncio.run(test())
    # The answer leaves before the thread of its batch ends.
    wait_for(lambda: is_healthy(served))


def is_healthy(served: AsyncModel) -> bool:
    try:
        served.check_health()
    except RuntimeError:
        return False
    return True
