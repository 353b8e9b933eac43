"""Requests of many clients at once are answered as if each came alone.

`tests/handlers/test_isolation.py` sends more of them to the dispatcher, without a server.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import Question, ask
from tests.e2e.served import served_modes
from tests.handlers.test_isolation import content, id_of, id_of_answer
from tests.random_requests import RandomRequests
from tests.serving import differences

COUNT = int(os.environ.get("ISOLATION_REQUESTS", "200"))
CLIENTS = 24
# Scores are sums of float32 numbers in an order that depends on the batch.
TOLERANCE = 1e-3


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_an_answer_beside_those_of_other_clients_is_that_of_the_request_alone(
    server: Server,
) -> None:
    each = COUNT // len(served_modes())
    questions = [
        question
        for mode in served_modes()
        for question in RandomRequests(mode, mode, seed=0).draw(each)
    ]
    random.Random(0).shuffle(questions)
    alone = [answer_of(ask(server, question)) for question in questions]
    with ThreadPoolExecutor(CLIENTS) as threads:
        together = list(threads.map(lambda question: ask(server, question), questions))
    for question, response, expected in zip(questions, together, alone, strict=True):
        answer = answer_of(response)
        assert not differences(answer, expected, TOLERANCE), shown(question)
        assert id_of(question) in (None, id_of_answer(answer)) or answer[0] != 200


def answer_of(response: httpx.Response) -> list[Any]:
    return [response.status_code, content(response.content, response.headers["content-type"])]


def shown(question: Question) -> str:
    return f"{question.path} {question.body[:500]!r}"
