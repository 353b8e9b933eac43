"""What every protocol in `handlers/protocols/` promises, and what the two first ones read."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.errors import BadRequest, RequestError, RequestTooLarge
from handlers.protocols.base import BaseProtocol
from handlers.registry import protocols
from handlers.requests import Request
from handlers.sections import Handler
from tests.serving import read_json

SETTINGS = Handler(mode="sequence_classification", max_rows=3)
KNOWN = protocols(SETTINGS)
LISTS = [Request("a", alone=False), Request("b", alone=False)]
MISTAKE = BadRequest("half \ud83d of it")


def read(content: Any, *, explain: bool = False) -> list[Request]:
    protocol = next(each for each in KNOWN if each.recognises(content))
    return protocol.read(content, explain=explain)


@pytest.mark.parametrize(
    ("content", "requests"),
    [
        ({"inputs": "a"}, [Request("a")]),
        ({"inputs": "a", "parameters": {"top_k": 2}}, [Request("a", {"top_k": 2})]),
        ({"inputs": "a", "parameters": None, "options": {"use_cache": False}}, [Request("a")]),
        ({"inputs": ["a", "b"]}, LISTS),
        ({"inputs": {"text": "a", "text_pair": "b"}}, [Request({"text": "a", "text_pair": "b"})]),
        ("a", [Request("a")]),
        (["a", "b"], LISTS),
        ({"text": "a", "target": 1}, [Request("a")]),
        ({"question": "a", "context": "b"}, [Request({"question": "a", "context": "b"})]),
        ({"text": "a", "text_pair": "b"}, [Request({"text": "a", "text_pair": "b"})]),
    ],
)
def test_a_body_becomes_requests(content: Any, requests: list[Request]) -> None:
    assert read(content) == requests


def test_a_target_is_for_explanations_only() -> None:
    assert read({"text": "a", "target": 1}, explain=True) == [Request("a", {"target": 1})]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({}, "The body has no keys; send a text, "),
        ({"txt": "a"}, "The body has the keys txt; send a text, "),
        ({"\ud83d": "a"}, "The body has the keys \ud83d; send a text, "),
        ({"text": "a", "extra": 1}, "The body has the keys extra, text; send a text, "),
        (
            {"inputs": "a", "paramters": {}},
            "The body has the unknown key 'paramters'; did you mean",
        ),
        ({"parameters": {}}, "The body has no inputs; send them under that key."),
        ({"inputs": "a", "parameters": [1]}, "parameters must be an object, and is a list."),
        ({"inputs": []}, "inputs is an empty list; send at least one item."),
        ([], "inputs is an empty list; send at least one item."),
        (5, "The body must be a text, "),
        (None, "The body must be a text, "),
        ({1: 2}, "The body has the keys 1; send a text, "),
        ({1: 2, "inputs": "a"}, "The body has the unknown key '1'; known are inputs, "),
    ],
)
def test_a_body_of_another_shape_is_refused(content: Any, sentence: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(content)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("content", [{"inputs": ["a"] * 4}, ["a"] * 4])
def test_too_many_items_are_refused(content: Any) -> None:
    with pytest.raises(
        RequestTooLarge, match="inputs has 4 items, and this model takes 3 a request"
    ):
        read(content)


@pytest.mark.parametrize("protocol", KNOWN, ids=lambda protocol: type(protocol).__module__)
class TestEveryProtocol:
    def test_writes_an_answer_as_json(self, protocol: BaseProtocol) -> None:
        answer = protocol.write([Request("a")], [{"answer": "Zürich 🎉"}])
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert "Zürich 🎉" in answer.body.decode()

    def test_writes_an_error_with_its_status(self, protocol: BaseProtocol) -> None:
        answer = protocol.write([Request("a")], [MISTAKE])
        assert answer.status == 400
        assert read_json(answer.body)["message"] == str(MISTAKE)

    def test_writes_errors_of_a_list_in_their_places(self, protocol: BaseProtocol) -> None:
        answer = protocol.write(LISTS, ["fine", MISTAKE])
        first, second = read_json(answer.body)
        assert (answer.status, first, second["code"]) == (200, "fine", 400)

    def test_writes_a_list_of_errors_as_an_error(self, protocol: BaseProtocol) -> None:
        assert protocol.write(LISTS, [MISTAKE, MISTAKE]).status == 400

    def test_never_writes_what_is_not_json(self, protocol: BaseProtocol) -> None:
        with pytest.raises((RequestError, ValueError)):
            protocol.write([Request("a")], [{"score": float("nan")}])
