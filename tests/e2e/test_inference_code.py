"""Models that answer by their own code, over HTTP: the examples of the documentation."""

from __future__ import annotations

import pytest

from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import CLIENT, Question, ask, ask_json
from tests.e2e.served import ENDPOINT_HANDLER, INFERENCE_SCRIPT

PATHS = ("/predictions/{}", "/invocations?model_name={}")
TEXT = {"Content-Type": "text/plain"}


@pytest.mark.parametrize("path", PATHS)
def test_a_handler_of_hugging_face_answers(server: Server, path: str) -> None:
    url = path.format(ENDPOINT_HANDLER)
    answer = ask_json(server, url, {"inputs": "a fine day"})
    assert answer.json() == [{"label": "FOUND", "score": 0.5, "words": ["fine"]}]
    refused = ask_json(server, url, {"inputs": 5})
    assert (refused.status_code, refused.json()["message"]) == (400, "Send one text.")


@pytest.mark.parametrize("path", PATHS)
def test_a_script_of_sagemaker_answers(server: Server, path: str) -> None:
    url = path.format(INFERENCE_SCRIPT)
    answer = ask(server, Question(url, b"A wonderful film.", TEXT))
    assert (answer.text, answer.headers["content-type"]) == ("POSITIVE", "text/plain")
    assert ask_json(server, url, {"inputs": "A film."}).status_code == 400


def test_both_are_described(server: Server) -> None:
    for name, file in ((ENDPOINT_HANDLER, "handler.py"), (INFERENCE_SCRIPT, "inference.py")):
        url = f"{server.management_url}/models/{name}?customized=true"
        (described,) = CLIENT.get(url).json()
        assert described["customizedMetadata"]["inference_code"]["file"] == file
