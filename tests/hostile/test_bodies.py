"""Thousands of hostile requests to the dispatcher; `test_server.py` sends them to a real server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import MAX_HEADER, HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from tests.e2e.asking import Question
from tests.handlers.generation.test_chat import TEMPLATE
from tests.handlers.test_malformed import sentence_of
from tests.hostile.bodies import bodies
from tests.malformed import GOOD
from tests.serving import Served, differences, read_json

SEED, COUNT, BATCH = 7, 2400, 8
MAX_SIZE = 300_000
MAX_ERROR = 2000
MAX_GROWTH = 300 * 2**20
SECONDS = 20.0  # of the processor, for a batch; it takes some milliseconds
FEW = {"max_new_tokens": 2}
SETTINGS: dict[str, dict[str, Any]] = {
    "sequence_classification": {},
    "question_answering": {},
    "token_classification": {},
    "text_generation": {"parameters": FEW},
}
PATH = re.compile(r"/(?P<verb>\w+)/(?:models/)?\w+(?P<explain>:explain|/explain)?(?:/1\.0/?(.*))?")


def as_received(question: Question, *, decoded: bool) -> HttpRequest:
    """Return a request as TorchServe passes it to the handler.

    Args:
        question: the request.
        decoded: the value of decode_input_request in config.properties.
    """
    found = PATH.match(question.path)
    verb, explain, rest = found.groups() if found else ("", None, None)
    explains = verb == "explanations" or explain is not None
    kind = question.headers.get("Content-Type", "")
    own = {"explain": str(explains), "url_path": rest or "", "body": {"content-type": kind}}
    body: Any = bytearray(question.body)
    try:
        if decoded and kind == "application/json":
            body = json.loads(question.body.decode())
        elif decoded and kind.startswith("text"):
            body = question.body.decode()
    except (ValueError, RecursionError):
        pass
    return HttpRequest({"body": body}, {**own, **question.headers})


def batches(mode: str) -> Iterator[list[Question]]:
    drawn = list(bodies(SEED, COUNT // len(SETTINGS), {"model": mode}, MAX_SIZE))
    for start in range(0, len(drawn), BATCH):
        yield drawn[start : start + BATCH]


def check(question: Question, response: HttpResponse) -> None:
    """Check that a response is one, or the short error of its request."""
    shown = (
        f"{question.path} {question.headers} {question.body[:200]!r} got {response.body[:300]!r}"
    )
    assert response.status in (200, 400, 404, 413, 422, 503), shown
    assert all(len(value) <= MAX_HEADER for value in response.headers.values()), shown
    if response.status >= 400:
        assert len(response.body) <= MAX_ERROR, shown
        assert " " in sentence_of(read_json(response.body)), shown


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=pytest.mark.nightly if mode == "token_classification" else ())
        for mode in SETTINGS
    ],
)
@pytest.mark.parametrize(
    "decoded",
    [
        pytest.param(False, id="as bytes"),
        pytest.param(True, id="decoded", marks=pytest.mark.nightly),
    ],
)
def test_a_hostile_request_is_answered_or_refused_and_affects_no_other(
    checkpoint: Callable[..., Path], mode: str, decoded: bool
) -> None:
    model = Served(checkpoint(mode), mode, explain_timeout=2, **SETTINGS[mode])
    model.engine.task.checkpoint.tokenizer.chat_template = TEMPLATE
    good = HttpRequest({"body": {"inputs": GOOD[mode]}}, {})
    expected = model.ask(GOOD[mode])
    memory = psutil.Process().memory_info
    before = memory().rss
    for questions in batches(mode):
        start = time.process_time()  # other programs do not count
        received = [as_received(question, decoded=decoded) for question in questions]
        *responses, last = model.dispatcher.dispatch([*received, good], Meter())
        assert time.process_time() - start < SECONDS, [each.body[:200] for each in questions]
        assert memory().rss - before < MAX_GROWTH
        assert not differences(read_json(last.body), expected, 1e-4)
        for question, response in zip(questions, responses, strict=True):
            check(question, response)
