"""Every mode answers over HTTP, to every kind of request."""

from __future__ import annotations

import json
import subprocess

import pytest

from hf_serve.scripts.paths import ARTIFACTS
from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import Question, ask, ask_json
from tests.e2e.served import served_modes


@pytest.mark.parametrize("mode", served_modes())
def test_the_sample_of_each_mode_is_answered_with_json(server: Server, mode: str) -> None:
    body = (ARTIFACTS / mode / "sample.json").read_bytes()
    answer = ask(server, Question(f"/predictions/{mode}", body))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()


def test_curl_without_a_content_type_gets_answer_score_and_offsets(server: Server) -> None:
    sample = ARTIFACTS / "question_answering" / "sample.json"
    url = f"{server.inference_url}/predictions/question_answering"
    command = ["curl", "-s", "-X", "POST", url, "-T", str(sample)]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    context = json.loads(sample.read_text("utf-8"))["inputs"]["context"]
    assert context[answer["start"] : answer["end"]] == answer["answer"]
    assert 0 < answer["score"] <= 1


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}], ids=["none", "text"])
def test_plain_text_is_classified(server: Server, headers: dict[str, str]) -> None:
    question = Question(
        "/predictions/sequence_classification", b"What a lovely, warm film.", headers
    )
    [best] = ask(server, question).json()
    assert best["label"] == "POSITIVE"
    assert best["score"] > 0.5


@pytest.mark.parametrize("kind", ["text/plain", "text/csv", "application/json", "text/json"])
@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-16", "utf-16le"])
def test_a_body_is_read_in_the_character_set_that_it_declares(
    server: Server, kind: str, charset: str
) -> None:
    text = '"Ein Café"' if kind.endswith("json") else "Ein Café"
    path = "/predictions/sequence_classification"
    expected = ask(server, Question(path, text.encode(), {"Content-Type": kind}))
    headers = {"Content-Type": f"{kind}; charset={charset}"}
    answer = ask(server, Question(path, text.encode(charset), headers))
    assert (answer.status_code, answer.json()) == (200, expected.json())


@pytest.mark.parametrize(
    ("mode", "file"),
    [
        ("sequence_classification", "sample_text.txt"),
        ("sequence_classification", "sample_text_target.txt"),
        ("token_classification", "sample_text.txt"),
        ("token_classification", "sample_text_target.txt"),
        ("question_answering", "sample_text.txt"),
        ("text_generation", "sample_text.txt"),
    ],
)
def test_sample_files_of_the_old_example_are_answered(server: Server, mode: str, file: str) -> None:
    body = (ARTIFACTS / mode / file).read_bytes()
    answer = ask(server, Question(f"/predictions/{mode}", body, {}))
    assert answer.status_code == 200, answer.text


def test_a_list_of_inputs_gets_a_list_back_with_errors_in_place(server: Server) -> None:
    body = {"inputs": ["A joy to watch.", 7, "A dull, sad, boring film."]}
    good, wrong, bad = ask_json(server, "/predictions/sequence_classification", body).json()
    assert (good["label"], bad["label"]) == ("POSITIVE", "NEGATIVE")
    assert wrong["code"] == 400


def test_each_prompt_gets_its_own_settings(server: Server) -> None:
    def ask_with(**parameters: object) -> str:
        body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8, **parameters}}
        answer = ask_json(server, "/predictions/text_generation", body).json()
        return str(answer[0]["generated_text"])

    assert ask_with() == ask_with(max_new_tokens=8)
    assert ask_with(do_sample=True, seed=3) == ask_with(do_sample=True, seed=3)
    assert not ask_with(return_full_text=False).startswith("Once upon")
