"""Hugging Face's own client with every mode: its answers are those to a plain request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hf_serve.scripts.paths import ARTIFACTS
from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import ask_json
from tests.e2e.clients import run_client
from tests.e2e.test_openai import MESSAGES, PROMPT, generated

FEW = {"max_new_tokens": 20}
STOP = {**FEW, "stop": ["."], "return_full_text": False, "details": True}


def sample(mode: str) -> Any:
    """Return the inputs of a mode's sample."""
    return json.loads((ARTIFACTS / mode / "sample.json").read_text("utf-8"))["inputs"]


def plain(server: Server, mode: str, **parameters: Any) -> Any:
    """Return the answer to a plain request with the same inputs."""
    body = {"inputs": sample(mode), "parameters": parameters}
    answer = ask_json(server, f"/predictions/{mode}", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def found(server: Server) -> Any:
    """The answers to the client."""
    texts = {
        "label": sample("sequence_classification"),
        "tokens": sample("token_classification"),
        "question": sample("question_answering"),
        "prompt": sample("text_generation"),
    }
    url = f"{server.inference_url}/predictions"
    return run_client("hugging_face_client", url=url, texts=texts, messages=MESSAGES)


def test_labels_are_correct(server: Server, found: Any) -> None:
    mode = "sequence_classification"
    assert found["label"] == plain(server, mode)
    assert found["labels"] == plain(server, mode, top_k=2, function_to_apply="sigmoid")
    assert len(found["labels"]) == 2


def test_tokens_and_entities_are_correct(server: Server, found: Any) -> None:
    mode, given = "token_classification", {"aggregation_strategy": "simple", "stride": 5}
    assert without_nulls(found["tokens"]) == plain(server, mode)
    assert without_nulls(found["entities"]) == plain(server, mode, ignore_labels=["O"], **given)


def test_answers_are_correct(server: Server, found: Any) -> None:
    mode = "question_answering"
    assert found["answer"] == plain(server, mode)
    assert found["answers"] == plain(server, mode, top_k=3, max_answer_len=4)


def test_texts_and_their_details_are_correct(server: Server, found: Any) -> None:
    [text] = plain(server, "text_generation", **FEW)
    assert found["text"] == text["generated_text"]
    [detailed] = plain(server, "text_generation", **STOP)
    for fact in ("finish_reason", "generated_tokens"):
        assert found["details"]["details"][fact] == detailed["details"][fact]
    assert found["details"]["generated_text"] == detailed["generated_text"]


def test_streams_add_up_to_the_text(server: Server, found: Any) -> None:
    assert sample("text_generation") + "".join(found["stream"]) == found["text"]
    assert len(found["stream"]) > 5
    last = found["events"][-1]
    assert "".join(each["token"]["text"] for each in found["events"]) == last["generated_text"]
    [detailed] = plain(server, "text_generation", **STOP)
    assert last["generated_text"] == detailed["generated_text"]
    for fact in ("finish_reason", "generated_tokens", "input_length"):
        assert last["details"][fact] == detailed["details"][fact]
    # The last event has none where the token that ended the text is no part of it.
    ids = [each["token"]["id"] for each in found["events"]]
    assert [each for each in ids if each is not None] == [
        token["id"] for token in detailed["details"]["tokens"]
    ]


def test_the_path_of_a_version_answers_the_same(found: Any) -> None:
    for name, answer in found["version"].items():
        assert answer == found[name]


def test_chats_are_correct(server: Server, found: Any) -> None:
    [expected] = generated(server, [PROMPT], 20)
    assert found["chat"] == found["same_chat"] == expected
    assert "".join(chunk or "" for chunk in found["chunks"]) == expected


def test_the_client_shows_the_error_message(found: Any) -> None:
    assert found["mistake"]["status"] == 400
    assert found["refused"] == "ValidationError"
    assert found["mistake"]["body"]["message"].startswith("inputs is empty")
    assert "inputs is empty; send a text." in found["mistake"]["shown"]


def without_nulls(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out nulls: the client adds them for missing keys."""
    return [{key: value for key, value in each.items() if value is not None} for each in objects]
