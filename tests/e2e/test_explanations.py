"""Every mode explains its predictions over HTTP, as JSON and as a page."""

from __future__ import annotations

import json

import pytest

from hf_serve.scripts.paths import ARTIFACTS
from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import Question, ask, ask_at_once, ask_json
from tests.e2e.served import explained_modes
from tests.malformed import GOOD

JSON = {"Content-Type": "application/json"}
PAGE = {**JSON, "Accept": "text/html"}
KEYS = {"prediction", "target", "method", "converged"}


@pytest.mark.parametrize("mode", explained_modes())
def test_each_mode_explains_its_sample_as_json_and_as_a_page(server: Server, mode: str) -> None:
    body = (ARTIFACTS / mode / "sample.json").read_bytes()
    response = ask(server, Question(f"/explanations/{mode}", body))
    page = ask(server, Question(f"/explanations/{mode}", body, PAGE))
    assert response.status_code == 200, response.text
    assert response.json().keys() >= KEYS
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")


@pytest.mark.parametrize("mode", explained_modes())
def test_each_request_of_a_mixed_batch_of_16_gets_its_own_answer(server: Server, mode: str) -> None:
    methods = ["feature_ablation", "input_x_gradient", None, "no_such_method"] * 4
    questions = []
    for number, method in enumerate(methods):
        parameters = {"granularity": "word", **({"method": method} if method else {"n_steps": 8})}
        body = json.dumps({"inputs": GOOD[mode], "parameters": parameters}).encode()
        headers = PAGE if number % 8 < 4 else JSON
        questions.append(Question(f"/explanations/{mode}", body, headers))
    for question, method, answer in zip(
        questions, methods, ask_at_once(server, questions), strict=True
    ):
        if method == "no_such_method":
            assert answer.status_code == 400
            assert "feature_ablation" in answer.json()["message"]
        elif question.headers is PAGE:
            assert answer.headers["content-type"].startswith("text/html")
        else:
            assert answer.json()["method"] == method or method is None


def test_the_old_examples_body_names_the_class_to_explain(server: Server) -> None:
    body = {"text": "A tender and funny film.", "target": 0}
    response = ask_json(server, "/explanations/sequence_classification", body).json()
    assert response["target"]["label"] == "NEGATIVE"
    assert len(response["words"]) == len(response["importances"])
    assert isinstance(response["delta"], float)


def test_hostile_text_is_escaped_in_the_page(server: Server) -> None:
    body = {"inputs": "A film <script>alert('x')</script> & \"more\" <img src=x onerror=y>"}
    page = ask_json(server, "/explanations/sequence_classification", body, Accept="text/html").text
    assert "<script" not in page
    assert "<img" not in page
