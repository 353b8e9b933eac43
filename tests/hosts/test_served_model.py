"""A model behind an event loop is healthy until it fails, or a batch hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from hosts.served_model import Part, ServedModel
from tests.sentences import refused
from tests.waiting import wait_for


class Model:
    """Answers each request with its row, once it may."""

    runs_side_by_side = False

    def __init__(self, response_timeout: float) -> None:
        self.config = SimpleNamespace(
            batchSize=2, maxBatchDelay=50, responseTimeout=response_timeout
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


async def ask(served: ServedModel, version: str = "") -> list[Part]:
    async def answer_in_batch(incoming: Any) -> None:
        await served.answer_batch([incoming])

    parts = served.answer({"body": b"fox"}, {}, version, answer_in_batch)
    return [part async for part in parts]


def test_a_request_for_its_version_is_answered_and_for_another_is_not() -> None:
    model = Model(response_timeout=60)
    model.may_answer.set()
    served = ServedModel(model, "fox", "1.0")
    assert asyncio.run(ask(served, "1.0")) == [(200, "", {}, b"fox")]
    ((status, _, _, body),) = asyncio.run(ask(served, "2.0"))
    assert status == 404
    assert b"Model version: 2.0 does not exist for model: fox" in body


def test_a_model_that_failed_is_not_healthy() -> None:
    model = Model(response_timeout=60)
    served = ServedModel(model, "fox", "1.0")
    served.check_health()
    model.has_failed = True
    with refused(RuntimeError):
        served.check_health()


def test_a_batch_that_hangs_is_noticed_until_it_ends() -> None:
    model = Model(response_timeout=0)
    served = ServedModel(model, "fox", "1.0")

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


def is_healthy(served: ServedModel) -> bool:
    try:
        served.check_health()
    except RuntimeError:
        return False
    return True
