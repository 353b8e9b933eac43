"""The forms in which clients send one item."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.errors import BadRequest
from hf_serve.handlers.protocols.items import NESTED_PARAMETERS, has_other_input_keys, read_item
from tests.sentences import Sentence, refused

CHAT = [{"role": "user", "content": "Who sings?"}]
PAIR = {"text": "a", "text_pair": "b"}
QUESTION = {"question": "Who?", "context": "Nina."}
GENERATION, QUESTIONS = "text_generation", "question_answering"
CLASSES, TOKENS = "sequence_classification", "token_classification"
ENCODED = {"b64": base64.b64encode("Zürich".encode()).decode()}


def read(given: Any, mode: str = CLASSES, *, explains: bool = False) -> tuple[Any, Any]:
    return read_item(
        given, tasks.get(mode).description.wire.input_columns, "line", explains=explains
    )


@pytest.mark.parametrize(
    ("mode", "given", "inputs"),
    [
        (CLASSES, "a", "a"),
        (CLASSES, ["a", "b"], PAIR),
        (TOKENS, ["a"], "a"),
        (CLASSES, PAIR, PAIR),
        (CLASSES, {"text": "a"}, "a"),
        (CLASSES, {"inputs": PAIR}, PAIR),
        (CLASSES, {"data": "a"}, "a"),
        (CLASSES, {"data": PAIR}, PAIR),
        (CLASSES, {"data": ENCODED}, "Zürich"),
        (CLASSES, ENCODED, "Zürich"),
        (CLASSES, {"features": ["a"]}, "a"),
        (CLASSES, {"features": ["a", "b"]}, PAIR),
        (TOKENS, {"features": ["a"]}, "a"),
        (QUESTIONS, QUESTION, QUESTION),
        (QUESTIONS, {"inputs": QUESTION}, QUESTION),
        (QUESTIONS, {"features": ["Who?", "Nina."]}, QUESTION),
        (GENERATION, {"prompt": "a"}, "a"),
        (GENERATION, CHAT, CHAT),
        (GENERATION, {"messages": CHAT}, CHAT),
        (GENERATION, {"inputs": CHAT}, CHAT),
        (GENERATION, 5, 5),
    ],
)
def test_the_inputs_of_an_item_are_read(mode: str, given: Any, inputs: Any) -> None:
    assert read(given, mode) == (inputs, {})


def test_an_item_may_have_the_keys_of_any_tasks_inputs() -> None:
    columns, inputs = [("sentence", "other")], {"sentence": "a", "other": "b"}
    assert read_item(inputs, columns, "line", explains=False) == (inputs, {})
    assert has_other_input_keys(inputs, columns)
    with refused(BadRequest, "sentence"):
        read_item({"sentence": "a"}, columns, "line", explains=False)


@pytest.mark.parametrize("content", [{"inputs": "a"}, {"text": "a"}, {"data": "a"}])
def test_an_item_has_its_own_parameters(content: Any) -> None:
    assert read({**content, "parameters": {"top_k": 2}, "options": {}}) == ("a", {"top_k": 2})


@pytest.mark.parametrize("name", NESTED_PARAMETERS)
def test_nested_parameters_are_merged(name: str) -> None:
    given = {"top_k": 2, name: {"top_k": 3, "do_sample": True}}
    assert read({"inputs": "a", "parameters": given}) == ("a", {"top_k": 2, "do_sample": True})
    with refused(BadRequest, name):
        read({"inputs": "a", "parameters": {name: "x"}})


@pytest.mark.parametrize("content", [{"inputs": "a"}, {"text": "a"}, {"data": "a"}])
def test_a_target_is_for_explanations_only(content: Any) -> None:
    given = {**content, "target": 1, "parameters": {"n_steps": 9}}
    assert read(given) == ("a", {"n_steps": 9})
    assert read(given, explains=True) == ("a", {"n_steps": 9, "target": 1})


@pytest.mark.parametrize(
    ("mode", "given", "facts"),
    [
        (CLASSES, {"txt": "a"}, ["txt"]),
        (CLASSES, {}, ["line"]),
        (CLASSES, {"parameters": {}}, ["line"]),
        (CLASSES, {"inputs": "a", "id": 1}, ["id"]),
        (CLASSES, {"data": "a", "paramters": {}}, ["paramters"]),
        (CLASSES, {"inputs": "a", "parameters": 1}, ["parameters"]),
        (CLASSES, {"inputs": ["a", "b"]}, ["inputs"]),
        (GENERATION, {"messages": []}, ["messages"]),
        (CLASSES, {"b64": "no base64"}, ["b64", "UTF-8"]),
        (CLASSES, {"data": {"b64": "/w=="}}, ["b64", "UTF-8"]),
        (CLASSES, {"data": {"b64": 5}}, ["b64", "UTF-8"]),
        (TOKENS, {"features": ["a", "b"]}, ["2"]),
        (CLASSES, {"features": []}, ["0"]),
        (QUESTIONS, {"features": ["a"]}, ["1"]),
        (CLASSES, {"features": "a"}, ["line"]),
    ],
)
def test_an_item_of_another_shape_is_refused(mode: str, given: Any, facts: list[str]) -> None:
    with pytest.raises(BadRequest) as caught:
        read(given, mode)
    assert str(caught.value) == Sentence(*facts)
