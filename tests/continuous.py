"""An engine whose requests come at any time, as with `continuousBatching`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hf_serve.handlers.engine import Engine
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.types.request import Request

# Seconds until a test fails that waits for something that never happens.
LONG = 60.0


@contextmanager
def held(engine: Engine) -> Iterator[None]:
    """Keep the static groups of a model from running within the block."""
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        end.wait(LONG)

    thread = threading.Thread(target=engine.model.run_exclusively, args=(hold,))
    thread.start()
    assert begun.wait(LONG)
    try:
        yield
    finally:
        end.set()
        thread.join()


def wait_for_texts(engine: Engine, count: int) -> None:
    """Wait until so many texts wait."""
    while engine.load_metrics["waiting_texts"] < count:
        threading.Event().wait(0.01)


def predict(engine: Engine, request: Request, deadline: Deadline | None = None) -> Any:
    """Return the result of a request, or its error."""
    return engine.predict([request], deadline=deadline or Deadline())[0]


def finished_texts(manager: Any, count: int) -> dict[str, list[int]]:
    """Return the tokens of the requests of a manager of transformers once all have finished."""
    texts, finished = dict[str, list[int]](), set[str]()
    end = time.monotonic() + LONG
    while len(finished) < count and time.monotonic() < end:
        if output := manager.get_result(timeout=0.1):
            assert output.error is None
            texts[output.request_id] = list(output.generated_tokens)
            finished |= {output.request_id} if output.is_finished() else set()
    return texts
