"""An engine whose requests come at any time, as with `continuousBatching`."""

from __future__ import annotations

import threading
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
