"""A request is answered as if it came alone; `tests/e2e` sends more of them over HTTP."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from tests.e2e.asking import Question
from tests.modes import each_mode
from tests.random_requests import RandomRequests
from tests.serving import Served, differences

LARGEST_BATCH = 32
# Scores are sums of float32 numbers in an order that depends on the batch.
TOLERANCE = 1e-4
# Of attributions, in float32.
NOISE = 1e-5
# OpenAI's answers have an id and a time of their own.
OF_EACH_ANSWER = ("id", "created")


@pytest.mark.parametrize("count", [60, pytest.param(750, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("mode", each_mode())
def test_an_answer_in_random_company_is_that_of_the_request_alone(
    served: Callable[..., Served], mode: str, count: int
) -> None:
    model = served(mode)
    questions = RandomRequests(mode, "model", seed=count).draw(count)
    alone = [answer for question in questions for answer in answers(model, [question])]
    order = random.Random(1).sample(range(count), count)
    for numbers in batches(order):
        together = answers(model, [questions[number] for number in numbers])
        for number, answer in zip(numbers, together, strict=True):
            shown = questions[number].body[:500]
            found, expected = map(without_noise, (answer, alone[number]))
            assert not differences(found, expected, TOLERANCE), shown
            assert id_of(questions[number]) in (None, id_of_answer(answer)) or answer[0] != 200


def without_noise(answer: Any) -> Any:
    """Leave out the importances of an explanation whose attributions are sums of rounding errors.

    They are divided by their length, which multiplies the errors.
    """
    status, content = answer
    given = content.get("attributions") if isinstance(content, dict) else None
    if given is None or np.abs(np.hstack(given)).max() >= NOISE:
        return answer
    return [status, {**content, "importances": None}]


def batches(order: list[int]) -> Iterator[list[int]]:
    sizes = random.Random(2)
    while order:
        size = sizes.randint(2, LARGEST_BATCH)
        yield order[:size]
        order = order[size:]


def answers(model: Served, questions: Iterable[Question]) -> list[Any]:
    """Return status and content of the answer to each request of one batch."""
    parts: list[list[bytes]] = []
    http_requests = []
    for question in questions:
        sent: list[bytes] = []
        parts.append(sent)
        http_requests.append(as_received(question, partial(_keep, sent)))
    responses = model.dispatcher.dispatch(http_requests, Meter())
    return [
        [response.status, content(b"".join([*sent, response.body]), response.content_type)]
        for sent, response in zip(parts, responses, strict=True)
    ]


def _keep(sent: list[bytes], part: HttpResponse) -> None:
    sent.append(part.body)


def as_received(question: Question, send: Callable[[HttpResponse], None]) -> HttpRequest:
    """Return a request as TorchServe passes it on: verb and rest of its path are headers."""
    _, verb, _, *rest = question.path.split("/", maxsplit=4)
    path = "/".join(rest).removeprefix("1.0/")
    headers = {"explain": str(verb == "explanations"), "url_path": path}
    return HttpRequest({"body": question.body}, {**question.headers, **headers}, send=send)


def content(body: bytes, content_type: str) -> Any:
    """Return the JSON values of a body: one, one for each line, or one for each event."""
    text = body.decode()
    if "json" in content_type and "lines" not in content_type:
        return readable(json.loads(text))
    if content_type.startswith("text/plain"):
        return text
    lines = (line.removeprefix("data: ") for line in text.splitlines())
    return [json.loads(line) for line in lines if line.strip() and line != "[DONE]"]


def readable(value: Any) -> Any:
    """Return an answer without what is its own, and with the values of JSON texts in tensors."""
    if isinstance(value, dict) and "choices" in value:
        return {key: each for key, each in value.items() if key not in OF_EACH_ANSWER}
    if isinstance(value, dict) and "outputs" in value:
        return {**value, "outputs": [json.loads(text) for text in value["outputs"][0]["data"]]}
    return value


def id_of(question: Question) -> Any:
    try:
        document = json.loads(question.body)
    except ValueError:
        return None
    return document.get("id") if isinstance(document, dict) else None


def id_of_answer(answer: Any) -> Any:
    found = answer[1]
    return found.get("id") if isinstance(found, dict) else None


@pytest.mark.parametrize("family", ["Bert", "Roberta", "MPNet", "ModernBert"])
@pytest.mark.parametrize("mode", ["sequence_classification", "token_classification"])
def test_a_written_padding_token_has_the_same_answer_in_company(
    served: Callable[..., Served], family: str, mode: str
) -> None:
    """Models of the RoBERTa family do not count it among the positions."""
    model = served(mode, family=family)
    pad = model.engine.task.checkpoint.tokenizer.pad_token
    bodies = [{"inputs": text} for text in (f"a {pad} fox sings", f"{pad}{pad} film", "a", pad)]
    alone = [model.post(body)[0] for body in bodies]
    together = model.post(*bodies)
    assert not differences([*map(list, together)], [*map(list, alone)], 1e-5)
