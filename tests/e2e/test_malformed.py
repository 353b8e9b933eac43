"""Five thousand malformed requests, and well-formed ones between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from scripts.kit.demo_models.lessons import modes
from scripts.kit.server import Server
from tests.malformed import GOOD, malformed, malformed_chats
from tests.serving import differences, read_json

COUNT = 1000
EVERY = 25
ONCE = settings(
    max_examples=COUNT,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60, trust_env=False) as client:
        yield client


def sentence_of(answer: httpx.Response) -> str:
    """Return what an error says, in whichever protocol's shape."""
    error = read_json(answer.content)
    error = error.get("error", error)
    return str(error if isinstance(error, str) else error["message"])


class Siege:
    """Sends malformed requests, a well-formed one now and then, and looks at every answer."""

    def __init__(self, server: Server, client: httpx.Client, mode: str) -> None:
        self.url, self.client, self.sent = server.inference_url, client, 0
        self.good = f"/predictions/{mode}", {"inputs": GOOD[mode]}
        self.expected = self.answer()

    def answer(self) -> Any:
        path, body = self.good
        answer = self.client.post(self.url + path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, question: Any) -> None:
        answer = self.client.post(
            self.url + question.path, content=question.body, headers=question.headers
        )
        shown = f"{question.body[:300]!r} got {answer.status_code} {answer.text[:300]!r}"
        assert 400 <= answer.status_code < 500, shown
        assert answer.headers["content-type"] == "application/json", shown
        assert " " in sentence_of(answer), shown
        self.sent += 1
        if self.sent % EVERY == 0:
            assert not differences(self.answer(), self.expected, 1e-4)


@pytest.mark.parametrize("mode", modes())
def test_a_malformed_request_is_refused_and_harms_no_other(
    server: Server, client: httpx.Client, mode: str
) -> None:
    siege, before = Siege(server, client, mode), workers(server, mode)
    ONCE(given(malformed(mode, f"/predictions/{mode}"))(siege.send))()
    assert siege.sent >= COUNT
    assert workers(server, mode) == before


def test_a_malformed_chat_is_refused_and_harms_no_other(
    server: Server, client: httpx.Client
) -> None:
    siege = Siege(server, client, "text_generation")
    siege.good = "/predictions/chat", {"inputs": GOOD["text_generation"]}
    siege.expected, before = siege.answer(), workers(server, "chat")
    ONCE(given(malformed_chats("/predictions/chat"))(siege.send))()
    assert siege.sent >= COUNT
    assert workers(server, "chat") == before


def workers(server: Server, name: str) -> list[int]:
    """Return the process ids of a model's workers that are ready."""
    answer = httpx.get(f"{server.management_url}/models/{name}", timeout=60, trust_env=False).json()
    return [worker["pid"] for worker in answer[0]["workers"] if worker["status"] == "READY"]
