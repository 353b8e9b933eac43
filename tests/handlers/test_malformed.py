"""Malformed requests share batches with a well-formed one; `tests/e2e` sends some over HTTP too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from hf_serve.handlers.http.request import HttpRequest
from tests.drawn import drawn
from tests.e2e.asking import Question
from tests.handlers.generation.test_chat import TEMPLATE
from tests.malformed import GOOD, malformed, malformed_chats
from tests.modes import each_mode
from tests.serving import Served, differences

COUNT, BATCH = 150, 25
MODEL = "/predictions/model"


def as_received(question: Question) -> HttpRequest:
    """Return a request as TorchServe passes it on: the path after the version is a header."""
    path = question.path.removeprefix(f"{MODEL}/1.0/") if question.path != MODEL else ""
    return HttpRequest({"body": question.body}, {**question.headers, "url_path": path})


def check_refused(model: Served, mode: str, questions: list[Question]) -> None:
    """Send malformed requests, batch by batch, with a well-formed one at each end."""
    good = {"inputs": GOOD[mode]}
    [(_, expected)] = model.post(good)
    for start in range(0, len(questions), BATCH):
        bad = questions[start : start + BATCH]
        (first, *errors, last) = model.post(good, *map(as_received, bad), good)
        for status, answer in (first, last):
            assert status == 200
            assert not differences(answer, expected, 1e-4)
        for question, (status, answer) in zip(bad, errors, strict=True):
            shown = f"{question.body[:300]!r} got {status} {answer!r}"
            assert 400 <= status < 500, shown
            assert " " in sentence_of(answer), shown


def sentence_of(answer: Any) -> str:
    """Return the message of an error of any protocol."""
    error = answer.get("error", answer)
    return str(error if isinstance(error, str) else error["message"])


@pytest.mark.parametrize("mode", each_mode())
def test_malformed_requests_are_refused_and_affect_no_other(served: Any, mode: str) -> None:
    questions: list[Question] = []

    def keep(question: Question) -> None:
        questions.append(question)

    drawn(COUNT)(given(malformed(mode, MODEL))(keep))()
    check_refused(served(mode), mode, questions)


def test_malformed_chats_are_refused_and_affect_no_other(served: Any, monkeypatch: Any) -> None:
    model = served("text_generation")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    questions: list[Question] = []

    def keep(question: Question) -> None:
        questions.append(question)

    drawn(COUNT)(given(malformed_chats(MODEL))(keep))()
    check_refused(model, "text_generation", questions)
