"""Rows that share a TorchServe batch do not affect each other."""

from __future__ import annotations

import json

from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import Question, ask, ask_at_once

PATH = "/predictions/question_answering"
BROKEN = [
    b'{"inputs": {"question": "Who?", ',
    json.dumps({"inputs": {"question": "Who sings?"}}).encode(),
    json.dumps({"inputs": "a text alone"}).encode(),
    json.dumps({"inputs": {"question": "q", "context": "c"}, "parameters": {"top_k": 0}}).encode(),
]


def test_of_32_requests_every_eighth_malformed_one_gets_an_error(server: Server) -> None:
    names = [f"Person{number}" for number in range(32)]
    right = [
        Question(
            PATH,
            json.dumps(
                {
                    "inputs": {
                        "question": "Who plays the piano?",
                        "context": f"{name} plays the piano.",
                    }
                }
            ).encode(),
        )
        for name in names
    ]
    alone = [ask(server, question).json() for question in right]
    mixed = [
        Question(PATH, BROKEN[number // 8]) if number % 8 == 3 else question
        for number, question in enumerate(right)
    ]
    answers = ask_at_once(server, mixed)
    errors = [answer.json() for number, answer in enumerate(answers) if number % 8 == 3]
    assert [error["code"] for error in errors] == [400] * 4
    assert len({error["message"] for error in errors}) == 4
    for number, answer in enumerate(answers):
        if number % 8 != 3:
            assert answer.status_code == 200
            assert answer.json()["answer"] == alone[number]["answer"]
            assert abs(answer.json()["score"] - alone[number]["score"]) < 1e-4


def test_predictions_and_explanations_share_a_batch(server: Server) -> None:
    body = json.dumps({"inputs": "A tender and funny film."}).encode()
    verbs = ["predictions", "explanations"] * 8
    questions = [Question(f"/{verb}/sequence_classification", body) for verb in verbs]
    for verb, answer in zip(verbs, ask_at_once(server, questions), strict=True):
        found = answer.json()
        assert answer.status_code == 200, answer.text
        assert ("importances" in found) == (verb == "explanations")


def test_a_batch_of_malformed_bodies_leaves_the_worker_alive(server: Server) -> None:
    bodies = [b"", b"\xff\xfe", b"[" * 5000, b"{" * 5000, b'"\\ud800"', b"null", b"1e999", b"{}"]
    questions = [Question(PATH, body) for body in bodies]
    answers = ask_at_once(server, questions)
    assert {answer.status_code for answer in answers} == {400}
    assert all(answer.json()["message"] for answer in answers)
    [version] = server.describe("question_answering")
    assert [worker["status"] for worker in version["workers"]] == ["READY"]
