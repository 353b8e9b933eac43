"""OpenAI's `responses` as in its reference; tests/e2e has tests with its own client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from hf_serve.handlers.errors import Unprocessable
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.protocols.openai.response_items import chat_messages
from hf_serve.handlers.telemetry.metrics import Meter
from tests import serving
from tests.e2e.clients import run_client
from tests.handlers.generation.test_chat import CHAT, TEMPLATE
from tests.images import TEXTS
from tests.malformed import with_others
from tests.modes.image_text_to_text import chat_about
from tests.scripted import write
from tests.sentences import Sentence, refused
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
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["fox"]}},
    "required": ["name"],
    "additionalProperties": False,
}
FIND = {"type": "function", "name": "find", "parameters": SCHEMA, "strict": True}
RUN = {"type": "custom", "name": "run", "description": "Runs a text."}
THINKS = "{% set closing = '</think>' %}{% if tools %}{% endif %}{{ messages[-1].content }}"
CALL = '<tool_call>\n{"name": "find", "arguments": {"name": "fox"}}\n</tool_call>'
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
    return serving.call(model, path, body, sent, **more)


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
        ({"input": [USER, {"type": "function_call"}]}, 400, ["input[1]"]),
        (
            {"input": [USER, {"type": "item_reference", "id": "x"}]},
            422,
            ["input[1]", "item_reference"],
        ),
        ({"input": [USER, {"type": "reasoning", "content": [{}]}]}, 400, ["input[1]"]),
        ({"input": "a", "instructions": 5}, 400, ["instructions", "5"]),
        ({"input": "a", "max_output_tokens": 0}, 400, ["max_output_tokens", "0"]),
        ({"input": "a", "max_output_tokens": 999}, 400, ["prompt"]),
        ({"input": "a", "temperature": 3}, 400, ["temperature", "3"]),
        ({"input": "a", "previous_response_id": "resp_1"}, 422, ["previous_response_id"]),
        ({"input": "a", "conversation": "conv_1"}, 422, ["conversation"]),
        ({"input": "a", "tools": [{"type": "web_search"}]}, 422, ["tools[0]", "web_search"]),
        ({"input": "a", "tools": [{"type": "function", "name": "a b"}]}, 400, ["tools"]),
        ({"input": "a", "tools": [FIND], "tool_choice": {"type": "mcp"}}, 422, ["tool_choice"]),
        ({"input": "a", "include": ["file_search_call.results"]}, 422, ["include"]),
        ({"input": "a", "truncation": "middle"}, 400, ["truncation"]),
        ({"input": "a", "reasoning": {"effort": "high"}}, 422, ["reasoning_effort"]),
        ({"input": "a", "text": {"verbosity": "low"}}, 400, ["text.verbosity"]),
        ({"input": "a", "background": True}, 422, ["background"]),
        ({"input": "a", "text": {"format": {"type": "xml"}}}, 400, ["text.format.type"]),
        ({"input": "a", "text": {"format": {"type": "json_schema"}}}, 400, ["text.format"]),
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


@pytest.mark.parametrize(
    "given",
    [
        {"seed": 3, "temperature": 1.5},
        {"seed": 3, "temperature": 1.5, "top_k": 2, "min_p": 0.1},
        {"stop": ["a", "e"]},
        {"stop": "a"},
        {"logit_bias": {"5": 100}},
        {"repetition_penalty": 1.9, "frequency_penalty": 1.0, "presence_penalty": 1},
        {"min_tokens": 3, "stop_token_ids": [5], "bad_words": ["a"], "ignore_eos": True},
        {"structured_outputs": {"regex": "fox|bear"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
def test_the_settings_of_chats_hold(model: Served, given: Any) -> None:
    response = ask(model, input=CHAT, max_output_tokens=9, **given)
    chat = call(model, {"messages": CHAT, "max_tokens": 9, **given}, path="v1/chat/completions")
    (same,) = read_json(chat.body)["choices"]
    assert text_of(response) == same["message"]["content"]


def test_a_format_and_structured_outputs_exclude_one_another(model: Served) -> None:
    form = {"format": {"type": "json_object"}}
    answer = call(model, {"input": "a", "text": form, "structured_outputs": {"regex": "a"}})
    message = read_json(answer.body)["error"]["message"]
    assert (answer.status, message) == (400, Sentence("text.format", "structured_outputs"))


def test_the_model_calls_one_of_the_allowed_tools(model: Served, monkeypatch: Any) -> None:
    says(model, monkeypatch, CALL)
    other = {"type": "function", "name": "stop"}
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "find"}],
    }
    response = ask(model, input="Find it.", tools=[other, FIND], tool_choice=choice)
    (called,) = response["output"]
    assert (called["type"], called["name"], response["tool_choice"]) == (
        "function_call",
        "find",
        choice,
    )


def test_an_error_names_the_key_of_responses(model: Served, monkeypatch: Any) -> None:
    says(model, monkeypatch, "")
    bad = {**FIND, "parameters": {"type": "object", "properties": {"a": {"type": 5}}}}
    for given, key in (
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"tools": [bad]}, "tools"),
    ):
        error = read_json(call(model, {"input": "a", **given}).body)["error"]
        assert error["param"] == key


def test_a_part_of_the_type_text_is_a_text(model: Served) -> None:
    part = {"type": "text", "text": "Who sings?"}
    given = {"input": [{"role": "user", "content": [part]}], **FEW}
    assert text_of(ask(model, **given)) == text_of(ask(model, input="Who sings?", **FEW))


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


def test_the_result_of_a_tool_may_be_an_image() -> None:
    parts = [{"type": "input_image", "image_url": "data:x"}, {"type": "input_text", "text": "8"}]
    result = {"type": "function_call_output", "call_id": "c1", "output": parts}
    (message,) = chat_messages([result], reads_images=True)
    assert message["content"] == [
        {"type": "image_url", "image_url": {"url": "data:x"}},
        {"type": "text", "text": "8"},
    ]
    with refused(Unprocessable, "input[0].output", "input_image", "texts"):
        chat_messages([result], reads_images=False)


def says(model: Served, monkeypatch: Any, text: str, template: str = THINKS) -> None:
    """Give a model a template with thoughts and tools, and let it write a text."""
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", template)
    write(model, text, monkeypatch)


def without_ids(items: Any) -> Any:
    return [
        {key: value for key, value in item.items() if key not in ("id", "call_id")}
        for item in items
    ]


WRITTEN = {
    "message": ("<think>Hm.</think>Yes.", ["reasoning", "message"]),
    "calls": (f"<think>Hm.</think>{CALL}", ["reasoning", "function_call"]),
    "message and calls": (f"Yes.\n{CALL}", ["message", "function_call"]),
}


@pytest.mark.parametrize(("text", "kinds"), WRITTEN.values(), ids=WRITTEN)
def test_thoughts_messages_and_calls_are_items(
    model: Served, monkeypatch: Any, text: str, kinds: list[str]
) -> None:
    says(model, monkeypatch, text)
    body = {"input": "Is", "tools": [FIND], "max_output_tokens": 110}
    response = ask(model, **body)
    assert [item["type"] for item in response["output"]] == kinds
    found = events(call(model, {**body, "stream": True}))
    assert without_ids(found[-1]["response"]["output"]) == without_ids(response["output"])
    by_kind = {item["type"]: item for item in response["output"]}
    if "reasoning" in by_kind:
        assert by_kind["reasoning"]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
        assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    if "function_call" in by_kind:
        called = by_kind["function_call"]
        assert (called["name"], called["arguments"]) == ("find", '{"name": "fox"}')
        assert called["call_id"].startswith("call_") and called["status"] == "completed"


def test_thoughts_may_be_left_out_of_a_response(model: Served, monkeypatch: Any) -> None:
    says(model, monkeypatch, "<think>Hm.</think>Yes.")
    sent: Sent = []
    body = {"input": "Is", "include_reasoning": False, "max_output_tokens": 110}
    response = ask(model, **body)
    assert text_of(response) == "Yes."
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    last = call(model, {**body, "stream": True}, sent)
    found = events(*sent, last)
    assert not any("reasoning" in event["type"] for event in found)
    assert text_of(found[-1]["response"]) == "Yes."


def test_the_events_of_each_item_come_in_order(model: Served, monkeypatch: Any) -> None:
    says(model, monkeypatch, f"<think>Hm.</think>{CALL}")
    sent: Sent = []
    body = {"input": "Is", "tools": [FIND], "stream": True, "max_output_tokens": 110}
    last = call(model, body, sent)
    found = events(*sent, last)
    names = [each["type"].removeprefix("response.") for each in found]
    once = [name for at, name in enumerate(names) if at == 0 or name != names[at - 1]]
    assert once == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done"),
        *("output_item.done", "completed"),
    ]
    done = [each["item"] for each in found if each["type"] == "response.output_item.done"]
    assert found[-1]["response"]["output"] == done
    assert [each["output_index"] for each in found if "output_index" in each][-1] == 1


def test_a_custom_tool_is_called_with_a_text(model: Served, monkeypatch: Any) -> None:
    says(
        model,
        monkeypatch,
        '<tool_call>\n{"name": "run", "arguments": {"input": "a"}}\n</tool_call>',
    )
    body = {"input": "Is", "tools": [RUN], "tool_choice": "required"}
    (item,) = ask(model, **body)["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "run", "a")
    found = events(call(model, {**body, "stream": True}))
    (done,) = (each for each in found if each["type"].endswith("custom_tool_call_input.done"))
    assert done["input"] == "a"


def test_a_call_that_is_cut_is_none(model: Served, monkeypatch: Any) -> None:
    says(model, monkeypatch, CALL)
    response = ask(model, input="Is", tools=[FIND], tool_choice="required", max_output_tokens=20)
    assert (response["status"], response["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert [item["type"] for item in response["output"]] == ["message"]


def test_a_format_holds_after_the_thoughts(model: Served, monkeypatch: Any) -> None:
    says(model, monkeypatch, '<think>Hm.</think>{"name": "fox"}')
    chosen = {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}
    response = ask(model, input="Is", text={"format": chosen})
    assert json.loads(response["output"][1]["content"][0]["text"]) == {"name": "fox"}
    assert response["text"] == {"format": chosen}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Hm so.</think>\n\nYes, é😀.", "Yes, é😀."),
        (f"<think>Yes.</think>Yes.{CALL}", "Yes."),
        (f"h{CALL}", "h"),
    ],
)
def test_log_probabilities_are_of_the_text_alone_whole_and_streamed(
    model: Served, monkeypatch: Any, text: str, answer: str
) -> None:
    tokenizer = model.engine.task.checkpoint.tokenizer
    monkeypatch.setattr(tokenizer, "chat_template", THINKS)
    write(model, text, monkeypatch)
    body = {"input": "Is", "tools": [FIND], "include": ["message.output_text.logprobs"]}
    whole = ask(model, **body)
    sent: Sent = []
    end = call(model, {**body, "stream": True}, sent)
    for response in (whole, events(*sent, end)[-1]["response"]):
        (message,) = [item for item in response["output"] if item["type"] == "message"]
        (part,) = message["content"]
        logprobs = part["logprobs"]
        assert part["text"].strip() == answer
        assert "".join(each["token"] for each in logprobs).strip() == answer
        assert b"".join(bytes(each["bytes"]) for each in logprobs).decode().strip() == answer


def test_log_probabilities_are_included_where_they_are_requested(model: Served) -> None:
    response = ask(model, input=CHAT, include=["message.output_text.logprobs"], **FEW)
    (part,) = response["output"][0]["content"]
    assert "".join(each["token"] for each in part["logprobs"]) == part["text"]
    assert ask(model, input=CHAT, top_logprobs=2, **FEW)["output"][0]["content"][0]["logprobs"][0][
        "top_logprobs"
    ]


def test_items_of_a_tool_loop_become_a_chat() -> None:
    items: list[Any] = [
        {"role": "user", "content": "Go"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "find", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "run", "input": "a"},
        {"type": "function_call_output", "call_id": "c1", "output": "7"},
        {
            "type": "custom_tool_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "8"}],
        },
        REPLY,
    ]
    calls = [("c1", "find", "{}"), ("c2", "run", {"input": "a"})]
    assert chat_messages(items, reads_images=False) == [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": given}}
                for call_id, name, given in calls
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "8"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Nina."}]},
    ]


def test_thoughts_are_read_once_and_encrypted_ones_are_refused() -> None:
    summary = [{"type": "summary_text", "text": "Short."}]
    content = [{"type": "reasoning_text", "text": "Long."}]
    for given, thoughts in (({"content": content}, "Long."), ({"content": None}, "Short.")):
        item = {"type": "reasoning", "summary": summary, "encrypted_content": "x", **given}
        (message,) = chat_messages([item], reads_images=False)
        assert message["reasoning_content"] == thoughts
    with refused(Unprocessable, "input[0]"):
        chat_messages(
            [{"type": "reasoning", "summary": [], "encrypted_content": "x"}], reads_images=False
        )


def test_instructions_and_messages_of_the_developer_are_one_message(model: Served) -> None:
    developer = {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]}
    system = {"role": "system", "content": "Be brief.\n\nBe kind."}
    (same,) = model.ask([system, USER], max_new_tokens=6, return_full_text=False)
    response = ask(model, input=[developer, USER], instructions="Be brief.", **FEW)
    assert text_of(response) == same["generated_text"]
    assert response["instructions"] == "Be brief."


@pytest.mark.parametrize(
    ("status", "goes_on"), [("incomplete", True), ("in_progress", True), ("completed", False)]
)
def test_a_message_that_is_not_complete_goes_on(model: Served, status: str, goes_on: bool) -> None:
    reply = {"role": "assistant", "content": "Nina sin"}
    settings = {"max_new_tokens": 6, "return_full_text": False}
    (same,) = model.ask([USER, reply], continue_final_message=goes_on, **settings)
    response = ask(model, input=[USER, {**reply, "type": "message", "status": status}], **FEW)
    assert text_of(response) == same["generated_text"]


def test_a_conversation_goes_on_from_a_stored_response(storing: Served) -> None:
    model = storing
    first = ask(model, input="Who", **FEW)
    reply = {"role": "assistant", "content": text_of(first)}
    chat = [{"role": "user", "content": "Who"}, reply, {"role": "user", "content": "So?"}]
    (same,) = model.ask(chat, max_new_tokens=6, return_full_text=False)
    second = ask(model, input="So?", previous_response_id=first["id"], store=False, **FEW)
    assert text_of(second) == same["generated_text"]
    assert (first["store"], second["store"]) == (True, False)
    assert second["previous_response_id"] == first["id"]
    ask(model, input="Another one", **FEW)
    for lost in (first["id"], second["id"]):
        answer = call(model, {"input": "So?", "previous_response_id": lost, **FEW})
        assert answer.status == 400 and "keeps the last 1" in answer.body.decode()


@pytest.fixture
def storing(served: Callable[..., Served], monkeypatch: Any) -> Served:
    model = served("text_generation", family="GPT2", stored_responses=1)
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    return model


def stored(
    model: Served, path: str, body: Any = "", headers: Mapping[str, str] = {}
) -> tuple[int, Any]:
    """Return the status and the body of the answer about a stored response."""
    answer = call(model, body, None, f"v1/responses/{path}", **headers)
    return answer.status, read_json(answer.body)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stored_response_is_read_and_deleted(storing: Served, stream: bool) -> None:
    if stream:
        *_, last = events(call(storing, {"input": "Who", "stream": True, **FEW}))
        response = last["response"]
    else:
        response = ask(storing, input="Who", **FEW)
    path = response["id"]
    assert stored(storing, path) == (200, response)
    gone = {"id": path, "object": "response", "deleted": True}
    delete = {"X-HTTP-Method-Override": "DELETE"}
    assert stored(storing, path, headers=delete) == (200, gone)
    assert [stored(storing, path, headers=each)[0] for each in ({}, delete)] == [404, 404]
    status, body = stored(storing, "resp_0")
    assert (status, body["error"]["type"]) == (404, "invalid_request_error")
    assert Sentence("resp_0", "last 1") == body["error"]["message"]


def test_the_input_items_of_a_stored_response_come_in_pages(storing: Served) -> None:
    first = ask(storing, input="Who", **FEW)
    given = [{"role": "assistant", "content": "I"}, {"type": "message", **USER, "id": "mine"}]
    path = ask(storing, input=given, previous_response_id=first["id"], **FEW)["id"]
    texts = [{"type": "input_text", "text": "Who"}, {"type": "output_text", "text": "I"}]
    expected = [
        {"id": "item_0", "type": "message", "role": "user", "content": texts[:1]},
        *first["output"],
        {
            "id": "item_2",
            "type": "message",
            "role": "assistant",
            "content": [{**texts[1], "annotations": []}],
        },
        {
            "id": "mine",
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": USER["content"]}],
        },
    ]
    _, listed = stored(storing, f"{path}/input_items")
    ids = {"first_id": "mine", "last_id": "item_0"}
    assert listed == {"object": "list", "data": expected[::-1], **ids, "has_more": False}
    page = {"order": "asc", "limit": "2", "after": "item_0"}
    _, listed = stored(storing, f"{path}/input_items", page)
    assert (listed["data"], listed["has_more"]) == (expected[1:3], True)


@pytest.mark.parametrize(
    ("path", "body", "status", "facts"),
    [
        ("ID", {"stream": "true"}, 422, ["stream"]),
        ("ID/cancel", "", 422, ["background"]),
        ("ID/output", "", 404, ["input_items"]),
        ("ID/input_items", {"limit": 101}, 400, ["limit", 101, 100]),
        ("ID/input_items", {"order": "up"}, 400, ["order", "up"]),
        ("ID/input_items", {"after": "other"}, 400, ["after", "other"]),
        ("ID/input_items", [1], 400, ["list"]),
    ],
)
def test_what_a_stored_response_has_not_is_refused(
    storing: Served, path: str, body: Any, status: int, facts: list[Any]
) -> None:
    response = ask(storing, input="Who", **FEW)
    found, answer = stored(storing, path.replace("ID", response["id"]), body)
    assert found == status and Sentence(*facts) == answer["error"]["message"]


def test_nothing_is_found_where_nothing_is_stored(model: Served) -> None:
    status, answer = stored(model, "resp_0")
    assert status == 404
    assert Sentence("resp_0", "stored_responses", 0) == answer["error"]["message"]


def test_a_response_that_is_forgotten_meanwhile_is_no_error(storing: Served) -> None:
    first = ask(storing, input="Who", **FEW)
    bodies = [{"input": "So", **FEW}, {"input": "?", "previous_response_id": first["id"], **FEW}]
    headers = {"url_path": "v1/responses", "Content-Type": "application/json"}
    sent = [HttpRequest({"body": body}, headers) for body in bodies]
    assert [each.status for each in storing.dispatcher.dispatch(sent, Meter())] == [200, 200]


@pytest.mark.parametrize("key", ["summary", "content"])
def test_thoughts_that_are_no_list_are_an_error_of_the_client(model: Served, key: str) -> None:
    thoughts = {"type": "reasoning", "id": "r", key: {"type": "summary_text", "text": "x"}}
    answer = call(model, {"input": [thoughts, USER], **FEW})
    assert answer.status == 400
    assert Sentence(f"input[0].{key}", "list") == read_json(answer.body)["error"]["message"]


@pytest.mark.server
def test_the_types_of_openais_client_fit(model: Served, monkeypatch: Any) -> None:
    responses, streams = [], []
    for text, _ in WRITTEN.values():
        says(model, monkeypatch, text)
        body = {"input": "Is", "tools": [FIND, RUN], "max_output_tokens": 110}
        responses.append(ask(model, **body))
        streams += events(call(model, {**body, "stream": True}))
    found = run_client("openai_response_types", responses=responses, events=streams)
    assert found == {"responses": len(responses), "events": len(streams)}


def test_a_part_of_another_type_is_no_error_of_the_server(served: Callable[..., Served]) -> None:
    called = {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"}
    thoughts = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "x"}]}
    body = {
        "input": [
            {"type": "message", "role": "user", "content": PARTS[:1]},
            called,
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            thoughts,
        ],
        "tools": [FIND, RUN],
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 1,
    }
    model = served("text_generation")
    for changed in with_others(body):
        assert call(model, changed).status < 500, changed
