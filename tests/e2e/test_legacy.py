"""The old example's requests, as curl sends them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from hf_serve.scripts.paths import ARTIFACTS
from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import ask_json

FILE = ARTIFACTS / "sequence_classification" / "sample_text.txt"
TEXT = FILE.read_text("utf-8")
QUESTION = {"question": "Who sings?", "context": "Zoë sings & dances in Rome = Roma."}
PARAMETERS = json.dumps({"top_k": 2})
SEQUENCE, ANSWER = "predictions/sequence_classification", "predictions/question_answering"
EXPLAIN = "explanations/sequence_classification"
TARGET = {"text": "A fine film", "target": 1}


def curl(server: Server, path: str, *options: str) -> Any:
    command = ["curl", "-s", f"{server.inference_url}/{path}", *options]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


@pytest.mark.parametrize(
    ("path", "options", "body"),
    [
        (SEQUENCE, ["-X", "POST", "-T", str(FILE)], {"text": TEXT}),
        (SEQUENCE, ["-F", f"data=@{FILE}"], {"text": TEXT}),
        (SEQUENCE, ["-F", f"text=<{FILE}", "-F", "target=1"], {"text": TEXT}),
        (EXPLAIN, ["-F", "text=A fine film", "-F", "target=1"], TARGET),
        (
            SEQUENCE,
            ["-F", "inputs=A fine film", "-F", f"parameters={PARAMETERS}"],
            {"inputs": "A fine film", "parameters": {"top_k": 2}},
        ),
        (ANSWER, [part for item in QUESTION.items() for part in ("-F", "=".join(item))], QUESTION),
        (
            ANSWER,
            [part for item in QUESTION.items() for part in ("--data-urlencode", "=".join(item))],
            QUESTION,
        ),
        (
            SEQUENCE,
            ["-H", "Content-Type: text/plain", "-d", "A fine film"],
            {"text": "A fine film"},
        ),
    ],
)
def test_every_curl_command_gets_the_same_answer(
    server: Server, path: str, options: list[str], body: Any
) -> None:
    expected = ask_json(server, f"/{path}", body)
    assert expected.status_code == 200, expected.text
    assert curl(server, path, *options) == expected.json()


@pytest.mark.parametrize("text", ["A fine film", "2 = 1 + 1", '{"inputs": "A fine film"}'])
def test_the_error_for_a_text_sent_as_a_form_names_the_header_to_add(
    server: Server, text: str
) -> None:
    error = curl(server, SEQUENCE, "-d", text)
    assert error["code"] == 400
    assert "add -H 'Content-Type: text/plain'" in error["message"]
