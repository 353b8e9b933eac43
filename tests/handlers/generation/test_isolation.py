"""A request has the same answer, alone and beside any other requests: to the byte of its texts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.handlers.generation.test_chat import TEMPLATE
from tests.handlers.generation.test_generator import DeadlineOfQuestions
from tests.serving import Served

MODE = "text_generation"
END = 48  # a token that the tiny model writes often
STREAM = {"stream": True}
USAGE = {**STREAM, "stream_options": {"include_usage": True}}
CHAT = {"messages": [{"role": "user", "content": "Who sings?"}]}
SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("", {"inputs": "Once upon a time"}),
    ("", {"inputs": "Once upon a time", **STREAM}),
    ("", {"inputs": ["Ada", "Once upon"], "parameters": {"num_beams": 3}}),
    ("v1/completions", {"prompt": ["Ada", "The café in Zürich"]}),
    ("v1/completions", {"prompt": "The café in Zürich", **USAGE}),
    ("v1/chat/completions", CHAT),
    ("v1/chat/completions", {**CHAT, **USAGE}),
]
# Stop strings of one letter occur early in one text and late in another.
STOPS = ("e", "a", "th", " ", "n", "zz")
# Log probabilities are numbers of a model, whose last digits depend on the size of its batch.
VARIABLE = re.compile(rb'"(id)":"[^"]*"|"(created)":\d+|"(logprob)":-[\d.e-]+')


def call(number: int, stop: str, path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a request that may end by its stop string or by its maximum of new tokens."""
    most = 4 + 5 * number
    if path:
        return path, {**body, "stop": [stop], "max_tokens": most}
    given = {"stop": [stop], "max_new_tokens": most, "details": True}
    return path, {**body, "parameters": {**given, **body.get("parameters", {})}}


CALLS = [call(number, stop, *shape) for number, stop in enumerate(STOPS) for shape in SHAPES]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(None, id="no end token", marks=pytest.mark.nightly),
        pytest.param(END, id="a frequent end token"),
    ],
)
def model(request: Any, tmp_path_factory: Any) -> Served:
    folder: Path = tmp_path_factory.mktemp("gpt2")
    ends = {} if request.param is None else {"eos_token_id": request.param}
    tiny.write(folder, MODE, **ends)
    path = folder / "tokenizer_config.json"
    settings = {**json.loads(path.read_text()), "chat_template": TEMPLATE}
    path.write_text(json.dumps(settings))
    return Served(folder, MODE)


def post(model: Served, calls: Sequence[tuple[str, Any]]) -> list[tuple[int, bytes]]:
    """Return status and bytes of each answer in one batch; of a stream, whatever its parts."""
    parts: list[list[HttpResponse]] = [[] for _ in calls]
    requests = [
        HttpRequest({"body": body}, {"url_path": path}, sent.append)
        for (path, body), sent in zip(calls, parts, strict=True)
    ]
    answers = model.dispatcher.dispatch(requests, Meter())
    return [
        (answer.status, VARIABLE.sub(b"", b"".join(each.body for each in (*sent, answer))))
        for sent, answer in zip(parts, answers, strict=True)
    ]


def test_an_answer_is_the_same_alone_and_in_company(model: Served) -> None:
    alone = [post(model, [call])[0] for call in CALLS]
    assert {status for status, _ in alone} == {200}
    random = np.random.default_rng(0)
    for size in (2, 5, len(CALLS)):
        for _ in range(3):
            chosen = [int(number) for number in random.permutation(len(CALLS))[:size]]
            together = post(model, [CALLS[number] for number in chosen])
            for number, answer in zip(chosen, together, strict=True):
                assert answer == alone[number], CALLS[number]


def test_several_texts_of_a_prompt_end_each_at_its_own_stop_string(model: Served) -> None:
    given = {"do_sample": True, "seed": 3, "num_return_sequences": 4, "temperature": 3.0}
    settings = {**given, "max_new_tokens": 24, "details": True, "return_full_text": False}
    whole = model.ask("Ada", **settings)
    texts = [each["generated_text"] for each in whole]
    stop = next(letter for letter in "eaitns" if any(letter in text for text in texts))
    for text, stopped in zip(whole, model.ask("Ada", stop=stop, **settings), strict=True):
        assert stopped["generated_text"] == text["generated_text"].split(stop)[0]
        found, most = stopped["details"], text["details"]["generated_tokens"]
        if stop in text["generated_text"]:
            assert found["finish_reason"] == "stop_sequence"
            assert found["generated_tokens"] <= most
        else:
            assert found == text["details"]


def test_a_batch_ends_with_its_last_text(model: Served) -> None:
    """Also where no text ends by itself and a stop string ends the one that may be longest."""
    (whole,) = model.ask("Ada", max_new_tokens=3, return_full_text=False)
    stopped = {"max_new_tokens": 20, "stop": whole["generated_text"][-1:]}
    requests = [Request("Ada", stopped), Request("Nina", {"max_new_tokens": 12})]
    meter = Meter()
    model.engine.predict(requests, meter)
    assert meter.counts["forwards"] <= 12


@pytest.mark.parametrize(
    ("path", "body", "ending"),
    [
        ("", {"inputs": "Ada", "parameters": {"max_new_tokens": 40}, **STREAM}, b'"overloaded"}'),
        ("v1/completions", {"prompt": "Ada", "max_tokens": 40, **STREAM}, b"data: [DONE]"),
        ("v1/chat/completions", {**CHAT, "max_tokens": 40, **STREAM}, b"data: [DONE]"),
    ],
)
def test_a_stream_that_the_deadline_ends_has_an_error_as_its_last_event(
    tmp_path: Path, monkeypatch: Any, path: str, body: Any, ending: bytes
) -> None:
    model = Served(tiny.write(tmp_path, MODE), MODE)
    task: Any = model.engine.task
    monkeypatch.setattr(task.tokenizer, "chat_template", TEMPLATE)
    run = task.run
    monkeypatch.setattr(
        task,
        "run",
        lambda model, rows, meter, _=None: run(model, rows, meter, DeadlineOfQuestions(9)),
    )
    ((status, sent),) = post(model, [(path, body)])
    assert status == 200
    assert sent.strip().endswith(ending)
    assert b'"error"' in sent and sent.count(b"data: ") > 3
