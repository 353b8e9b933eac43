"""OpenAI's `responses` as in its reference; tests/e2e has tests with its own client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from tests.handlers.generation.test_chat import CHAT, TEMPLATE
from tests.images import TEXTS
from tests.modes.image_text_to_text import chat_about
from tests.sentences import Sentence
from tests.serving import Served, read_json

FEW = {"max_output_tokens": 6}
SYSTEM, USER = CHAT
PARTS = [{"type": "input_text", "text": "Who "}, {"type": "input_text", "text": "sings?"}]
REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Nina.", "annotations": []}],
}
ENDS = ["output_text.done", "content_part.done", "output_item.done"]
Sent = list[HttpResponse]


@pytest.fixture
def model(served: Callable[..., Served], monkeypatch: Any) -> Iterator[Served]:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    yield model


def call(
    model: Served, body: Any, sent: Sent | None = None, path: str = "v1/responses", **more: str
) -> HttpResponse:
    """Return the answer to one request; parts that are sent before it go into `sent`."""
    send = None if sent is None else sent.append
    headers = {"url_path": path, "Content-Type": "application/json", **more}
    (answer,) = model.dispatcher.dispatch([HttpRequest({"body": body}, headers, send)], Meter())
    return answer


def ask(model: Served, **body: Any) -> Any:
    answer = call(model, body)
    assert (answer.status, answer.content_type) == (200, "application/json"), answer.body
    return read_json(answer.body)


def text_of(response: Any) -> str:
    ((message,), kind) = response["output"], response["object"]
    (part,) = message["content"]
    assert (kind, message["role"], part["type"]) == ("response", "assistant", "output_text")
    return str(part["text"])


def events(*answers: HttpResponse) -> list[Any]:
    """Return the data of the events of a stream; each one's name is its type."""
    text = b"".join(answer.body for answer in answers).decode()
    assert {answer.content_type for answer in answers} == {"text/event-stream"}
    *blocks, end = text.split("\n\n")
    assert end == ""
    lines = [block.split("\n") for block in blocks]
    found = [json.loads(data.removeprefix("data: ")) for _, data in lines]
    assert [name for name, _ in lines] == [f"event: {each['type']}" for each in found]
    assert [each["sequence_number"] for each in found] == list(range(len(found)))
    return found


def test_an_input_gets_the_assistants_message(model: Served) -> None:
    response = ask(model, input=CHAT, **FEW)
    (same,) = model.ask(CHAT, max_new_tokens=6, return_full_text=False, details=True)
    assert text_of(response) == same["generated_text"]
    assert response["id"].startswith("resp_") and response["output"][0]["id"].startswith("msg_")
    assert (response["status"], response["model"]) == ("incomplete", "model")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    read, usage = same["details"]["input_length"], response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (
        read,
        6,
        read + 6,
    )


def test_a_text_that_ends_by_itself_is_completed(model: Served, monkeypatch: Any) -> None:
    task: Any = model.engine.task
    monkeypatch.setattr(
        task.generation_config, "eos_token_id", list(range(task.checkpoint.vocab_size))
    )
    response = ask(model, input=CHAT, **FEW)
    assert (response["status"], response["incomplete_details"]) == ("completed", None)
    assert response["output"][0]["status"] == "completed"


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        ({"input": "Who sings?"}, [USER]),
        ({"input": "Who sings?", "instructions": "Be brief."}, CHAT),
        ({"input": [USER], "instructions": "Be brief."}, CHAT),
        ({"input": [SYSTEM, {"type": "message", "role": "user", "content": PARTS}]}, CHAT),
        ({"input": [USER, REPLY, USER]}, [USER, {"role": "assistant", "content": "Nina."}, USER]),
    ],
)
def test_an_input_becomes_a_chat(model: Served, body: Any, messages: Any) -> None:
    (same,) = model.ask(messages, max_new_tokens=6, return_full_text=False)
    assert text_of(ask(model, **body, **FEW)) == same["generated_text"]


@pytest.mark.parametrize(
    ("given", "greedy"),
    [
        ({}, True),
        ({"temperature": 0}, True),
        ({"top_p": 0}, True),
        ({"store": True, "metadata": {"a": "b"}, "user": "me"}, True),
        ({"tools": [], "previous_response_id": None, "truncation": "disabled"}, True),
        ({"text": {"format": {"type": "text"}}, "background": False, "reasoning": None}, True),
        ({"temperature": 2.0}, False),
        ({"top_p": 0.99}, False),
    ],
)
def test_settings_are_those_of_a_chat(model: Served, given: Any, greedy: bool) -> None:
    (same,) = model.ask(CHAT, max_new_tokens=40, return_full_text=False)
    response = ask(model, input=CHAT, max_output_tokens=40, **given)
    assert (text_of(response) == same["generated_text"]) is greedy
    assert response["temperature"] == given.get("temperature")
    assert response["metadata"] == given.get("metadata", {})
    assert response["store"] is False


@pytest.mark.parametrize("in_parts", [True, False])
def test_a_stream_adds_up_to_the_response(model: Served, in_parts: bool) -> None:
    whole, sent = ask(model, input=CHAT, **FEW), Sent()
    last = call(model, {"input": CHAT, "stream": True, **FEW}, sent if in_parts else None)
    found = events(*sent, last)
    names = [each["type"].removeprefix("response.") for each in found]
    deltas = [each["delta"] for each in found if "delta" in each]
    begin = ["created", "in_progress", "output_item.added", "content_part.added"]
    assert names == [*begin, *["output_text.delta"] * len(deltas), *ENDS, "incomplete"]
    assert "".join(deltas) == found[-4]["text"] == text_of(whole)
    assert (found[0]["response"]["status"], found[0]["response"]["output"]) == ("in_progress", [])
    assert found[-1]["response"]["usage"] == whole["usage"]
    assert found[-1]["response"]["output"] == [found[-2]["item"]]
    assert {each["item_id"] for each in found if "item_id" in each} == {found[2]["item"]["id"]}
    assert len(sent) > 3 or not in_parts


def test_a_stream_that_fails_ends_with_a_failed_response(model: Served, monkeypatch: Any) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(model.engine.task, "decode", fail)
    body, sent = {"input": "Ada", "stream": True, **FEW}, Sent()
    last = call(model, body, sent)
    end = events(*sent, last)[-1]
    assert (end["type"], end["response"]["status"]) == ("response.failed", "failed")
    assert "RuntimeError" in end["response"]["error"]["message"]
    assert call(model, body).status == 500


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        ({}, 400, ["input"]),
        ({"input": 5}, 400, ["input"]),
        ({"input": [5]}, 400, ["input"]),
        ({"input": []}, 400, ["input"]),
        ({"input": ""}, 400, ["input"]),
        ({"input": CHAT * 501}, 413, ["input", "1002"]),
        ({"input": "a" * 200_001}, 400, ["input", "200,001"]),
        ({"input": [{"content": "a"}]}, 400, ["input[0].role"]),
        ({"input": [{"role": "user"}]}, 400, ["input[0].content"]),
        ({"input": [{"role": "user", "content": [5]}]}, 400, ["input[0].content"]),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            422,
            ["input_image", "input[0].content"],
        ),
        ({"input": [USER, {"type": "function_call"}]}, 422, ["input[1]"]),
        ({"input": "a", "instructions": 5}, 400, ["instructions", "5"]),
        ({"input": "a", "max_output_tokens": 0}, 400, ["max_output_tokens", "0"]),
        ({"input": "a", "max_output_tokens": 999}, 400, ["prompt"]),
        ({"input": "a", "temperature": 3}, 400, ["temperature", "3"]),
        ({"input": "a", "previous_response_id": "resp_1"}, 422, ["previous_response_id"]),
        ({"input": "a", "conversation": "conv_1"}, 422, ["conversation"]),
        ({"input": "a", "tools": [{"type": "web_search"}]}, 422, ["tools"]),
        ({"input": "a", "background": True}, 422, ["background"]),
        ({"input": "a", "text": {"format": {"type": "json_object"}}}, 422, ["text"]),
        ([], 400, ["body"]),
        (b"{", 400, ["body"]),
    ],
)
def test_a_request_that_cannot_be_answered_gets_openais_error(
    model: Served, body: Any, status: int, facts: list[str]
) -> None:
    answer = call(model, body)
    error = read_json(answer.body)["error"]
    assert (answer.status, error["type"]) == (status, "invalid_request_error")
    assert error["message"] == Sentence(*facts)


def test_what_is_refused_says_that_nothing_is_stored(model: Served) -> None:
    answer = call(model, {"input": "a", "previous_response_id": "resp_1"})
    assert "send the whole conversation as input" in read_json(answer.body)["error"]["message"]
    stored = call(model, "", path="v1/responses/resp_1")
    assert (stored.status, "no responses/resp_1 here" in stored.body.decode()) == (404, True)


def test_explanations_are_refused(model: Served) -> None:
    assert call(model, {"input": "a"}, explain="True").status == 422


def test_a_model_without_texts_or_template_refuses(served: Callable[..., Served]) -> None:
    for mode, word in (("sequence_classification", "writes no texts"), ("text_generation", "chat")):
        answer = call(served(mode), {"input": "a"})
        assert (answer.status, word in answer.body.decode()) == (422, True)


def test_a_model_that_reads_images_takes_them(served: Callable[..., Served]) -> None:
    vision = served("image_text_to_text")
    url = chat_about(TEXTS[0], "?")[0]["content"][0]["image_url"]["url"]
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": url},
    ]
    body = {"input": [{"role": "user", "content": parts}], "max_output_tokens": 5}
    answer = call(vision, body)
    assert answer.status == 200, answer.body
    chat = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": url}},
            ],
        }
    ]
    (same,) = vision.ask(chat, max_new_tokens=5, return_full_text=False)
    assert read_json(answer.body)["output"][0]["content"][0]["text"] == same["generated_text"]
    for part, status, facts in (
        ({"type": "input_file"}, 422, ["input_file", "images"]),
        ({"type": "input_image", "file_id": "file-1"}, 400, ["image_url"]),
    ):
        answer = call(vision, {"input": [{"role": "user", "content": [part]}]})
        assert answer.status == status
        assert read_json(answer.body)["error"]["message"] == Sentence(*facts)
