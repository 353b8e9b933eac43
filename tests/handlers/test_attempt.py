from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Served, explanation_of

Model = Callable[..., Served]
MODE = "sequence_classification"
SECRET = "the patient Quimby Zyzzyva"


@pytest.mark.parametrize("stage", ["parse", "encode", "run", "decode"])
def test_a_bug_is_reported_without_the_text_of_the_request(
    served: Model, monkeypatch: Any, caplog: Any, stage: str
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError(SECRET)

    model = served(MODE)
    monkeypatch.setattr(model.engine.task, stage, fail)
    with caplog.at_level(logging.DEBUG):
        ((status, answer),) = model.post({"inputs": SECRET})
    assert status == answer["code"] == 500
    assert (
        answer["message"] == "The handler failed with ValueError; the worker's log has the trace."
    )
    assert "ValueError in the handler, at " in caplog.text and Path(__file__).name in caplog.text
    assert not any(word in caplog.text for word in SECRET.split()[1:])


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": SECRET},
        {"inputs": [SECRET, 5]},
        {"inputs": SECRET, "parameters": {SECRET: SECRET}},
        {SECRET: SECRET},
        SECRET.encode("utf-16"),
        f'{{"inputs": "{SECRET}'.encode(),
        f"{{'inputs': '{SECRET}', '\\d': 1 is 1}}".encode(),
    ],
)
def test_no_log_contains_request_text(served: Model, caplog: Any, capfd: Any, body: Any) -> None:
    with caplog.at_level(logging.DEBUG):
        served(MODE).post(body, explanation_of(body))
    written = caplog.text + "".join(capfd.readouterr())
    assert not any(word in written for word in SECRET.split()[1:])


def test_a_panic_in_the_tokenizer_fails_its_row_only(served: Model, monkeypatch: Any) -> None:
    class Panic(BaseException):
        """An error like that of the tokenizers library, which is no Exception."""

    model = served(MODE)
    encode = model.engine.task.encode

    def fail(queries: Any) -> Any:
        if any("panic" in query.text[0] for query in queries):
            raise Panic
        return encode(queries)

    monkeypatch.setattr(model.engine.task, "encode", fail)
    (first, _), (second, answer) = model.post({"inputs": "panic"}, {"inputs": "A fine film"})
    assert (first, second) == (500, 200)
    assert answer == model.ask("A fine film")
