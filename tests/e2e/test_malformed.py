"""Malformed requests over HTTP, with well-formed ones between them; thousands are marked `nightly`.

`tests/handlers/test_malformed.py` sends more of them to the dispatcher, without a server.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given

from hf_serve.scripts.serving.server import Server
from tests.drawn import drawn
from tests.e2e.asking import Question, ask, ask_json
from tests.e2e.served import served_modes
from tests.malformed import GOOD, malformed, malformed_chats
from tests.serving import differences, read_json

EVERY = 25
every_count = pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.nightly)])


def sentence_of(answer: httpx.Response) -> str:
    """Return the message of an error of any protocol."""
    error = read_json(answer.content)
    error = error.get("error", error)
    return str(error if isinstance(error, str) else error["message"])


class Sender:
    """Sends malformed requests, a well-formed one at intervals, and checks every answer."""

    def __init__(self, server: Server, mode: str) -> None:
        self.server, self.mode, self.sent = server, mode, 0
        self.expected = self.answer()

    def answer(self) -> Any:
        answer = ask_json(self.server, f"/predictions/{self.mode}", {"inputs": GOOD[self.mode]})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, question: Question) -> None:
        answer = ask(self.server, question)
        shown = f"{question.body[:300]!r} got {answer.status_code} {answer.text[:300]!r}"
        assert 400 <= answer.status_code < 500, shown
        assert answer.headers["content-type"] == "application/json", shown
        assert " " in sentence_of(answer), shown
        self.sent += 1
        if self.sent % EVERY == 0:
            assert not differences(self.answer(), self.expected, 1e-4)


@every_count
@pytest.mark.parametrize("mode", served_modes())
def test_a_malformed_request_is_refused_and_affects_no_other(
    server: Server, mode: str, count: int
) -> None:
    sender, before = Sender(server, mode), workers(server, mode)
    drawn(count)(given(malformed(mode, f"/predictions/{mode}"))(sender.send))()
    assert sender.sent >= count
    assert workers(server, mode) == before


@every_count
def test_a_malformed_chat_is_refused_and_affects_no_other(server: Server, count: int) -> None:
    mode = "text_generation"
    sender, before = Sender(server, mode), workers(server, mode)
    drawn(count)(given(malformed_chats(f"/predictions/{mode}"))(sender.send))()
    assert sender.sent >= count
    assert workers(server, mode) == before


def workers(server: Server, name: str) -> list[int]:
    """Return the process ids of a model's workers that are ready."""
    [version] = server.describe(name)
    return [worker["pid"] for worker in version["workers"] if worker["status"] == "READY"]
