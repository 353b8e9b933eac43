"""OpenAI's API as in its reference; tests/e2e has tests with its own client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.protocols.openai.bodies import CHAT as CHAT_KEYS
from tests.handlers.generation.test_chat import CHAT, PROMPT, TEMPLATE
from tests.sentences import Sentence
from tests.serving import Served, call, read_json
from tests.tiny_tokenizers import POSITIONS

FEW = {"max_tokens": 6}
HONOURED = set(CHAT_KEYS.named("honoured"))
DRAW = {"do_sample": True, "temperature": 2.0, "seed": 3}
Sent = list[HttpResponse]


@pytest.fixture
def model(served: Callable[..., Served], monkeypatch: Any) -> Iterator[Served]:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    yield model


def ask(model: Served, path: str, **body: Any) -> Any:
    answer = call(model, path, body)
    assert (answer.status, answer.content_type) == (200, "application/json"), answer.body
    return read_json(answer.body)


def events(*answers: HttpResponse) -> list[Any]:
    """Return the data of the events of a stream, without the one that ends it."""
    text = b"".join(answer.body for answer in answers).decode()
    assert {answer.content_type for answer in answers} == {"text/event-stream"}
    lines = text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_a_chat_gets_the_assistants_message(model: Served) -> None:
    answer = ask(model, "v1/chat/completions", messages=CHAT, **FEW)
    (same,) = model.ask(CHAT, max_new_tokens=6, return_full_text=False, details=True)
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": same["generated_text"]}
    assert choice["finish_reason"] == "length"
    read = same["details"]["input_length"]
    counts = {"prompt_tokens": read, "completion_tokens": 6, "total_tokens": read + 6}
    assert answer["usage"] == counts
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-")


def test_prompts_get_their_continuations_in_order(model: Served) -> None:
    answer = ask(model, "v1/completions", prompt=[PROMPT, "Ada"], n=2, seed=5, **FEW)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    alone = ask(model, "v1/completions", prompt="Ada", n=2, seed=5, **FEW)
    texts = [choice["text"] for choice in answer["choices"]]
    assert texts[2:] == [choice["text"] for choice in alone["choices"]]


def test_a_prompt_of_token_ids_gets_what_its_text_gets(model: Served) -> None:
    texts = [PROMPT, "Ada"]
    ids = [model.engine.task.checkpoint.tokenizer(text)["input_ids"] for text in texts]
    for echo in (False, True):
        settings = {"echo": echo, **FEW}
        whole = ask(model, "v1/completions", prompt=texts, **settings)
        for sent, same in ((ids, whole["choices"]), (ids[0], whole["choices"][:1])):
            assert ask(model, "v1/completions", prompt=sent, **settings)["choices"] == same


def test_all_answers_to_a_prompt_are_the_same_without_sampling(model: Served) -> None:
    settings = {"temperature": 0, **FEW}
    once = ask(model, "completions", prompt=["Ada", "Nina"], **settings)
    twice = ask(model, "completions", prompt=["Ada", "Nina"], n=2, **settings)
    texts = [choice["text"] for choice in once["choices"]]
    assert [choice["text"] for choice in twice["choices"]] == [texts[0]] * 2 + [texts[1]] * 2
    assert twice["usage"]["completion_tokens"] == 2 * once["usage"]["completion_tokens"]
    assert twice["usage"]["prompt_tokens"] == once["usage"]["prompt_tokens"]


def test_echo_returns_the_prompt_and_its_continuation(model: Served) -> None:
    (choice,) = ask(model, "v1/completions", prompt="Ada", echo=True, **FEW)["choices"]
    assert choice["text"].startswith("Ada")


@pytest.mark.parametrize("choices", [1, 2])
def test_echo_returns_a_truncated_prompt_as_the_model_reads_it(model: Served, choices: int) -> None:
    prompt, room = "Once upon a time there was a fox", {"truncate_prompt_tokens": 4}
    body = {"prompt": prompt, **room, "n": choices, "max_tokens": 12, "seed": 3}
    texts = [each["text"] for each in ask(model, "completions", **body)["choices"]]
    whole = [each["text"] for each in ask(model, "completions", echo=True, **body)["choices"]]
    for text, echoed in zip(texts, whole, strict=True):
        read = echoed.removesuffix(text)
        assert read and read != prompt and prompt.endswith(read)
    sent: Sent = []
    last = call(model, "completions", {**body, "echo": True, "stream": True}, sent)
    parts = events(*sent, last)
    assert [joined(parts, number) for number in range(choices)] == whole


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        ({}, {}),
        ({"temperature": 0}, {}),
        ({"temperature": 1e-9, "top_p": 0.5}, {}),
        ({"temperature": 1, "top_p": 0}, {}),
        ({"temperature": 2, "top_k": -1, "min_p": 0, "seed": 3}, {**DRAW, "top_k": 0}),
        ({"temperature": 2, "seed": 3}, DRAW),
        ({"top_p": 0.5, "seed": 3}, {"do_sample": True, "top_p": 0.5, "seed": 3}),
        ({"seed": -1}, {}),
        ({"stop": "e"}, {"stop": "e"}),
        ({"stop": ["e", "a"], "user": "me", "store": False}, {"stop": ["e", "a"]}),
        ({"max_completion_tokens": 2}, {"max_new_tokens": 2}),
        ({"frequency_penalty": 0, "logprobs": False, "tools": []}, {}),
        ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
        ({"presence_penalty": 1.5}, {"presence_penalty": 1.5}),
        ({"logit_bias": {"7": 5.5}}, {"logit_bias": {"7": 5.5}}),
        ({"min_tokens": 6, "ignore_eos": True}, {"min_new_tokens": 6, "ignore_eos": True}),
        ({"allowed_token_ids": [7, 9]}, {"allowed_token_ids": [7, 9]}),
        ({"bad_words": ["e", "a"]}, {"bad_words": ["e", "a"]}),
        ({"truncate_prompt_tokens": 3}, {"truncate": 3}),
        ({"truncate_prompt_tokens": -1}, {}),
        ({"add_special_tokens": True}, {"add_special_tokens": True}),
        ({"skip_special_tokens": False}, {"skip_special_tokens": False}),
        ({"chat_template_kwargs": {"loud": True}}, {"chat_template_kwargs": {"loud": True}}),
        ({"add_generation_prompt": False}, {"add_generation_prompt": False}),
        ({"continue_final_message": True}, {"continue_final_message": True}),
        ({"reasoning_effort": "none", "documents": []}, {}),
        ({"best_of": 1}, {}),
        (dict.fromkeys(HONOURED - {"model", "messages", "max_tokens"}), {}),
        ({"n": 3, "best_of": 3, "temperature": 0}, {}),
        ({"n": 3, "best_of": 2, **DRAW}, {**DRAW, "num_return_sequences": 3}),
    ],
)
def test_settings_become_generation_parameters(model: Served, given: Any, parameters: Any) -> None:
    answer = ask(model, "chat/completions", messages=CHAT, **{**FEW, **given})
    same, *_ = model.ask(CHAT, **{"max_new_tokens": 6, "return_full_text": False, **parameters})
    assert answer["choices"][0]["message"]["content"] == same["generated_text"]


def test_the_last_tokens_of_a_long_prompt_are_those_of_the_model(model: Served) -> None:
    body = {"prompt": "Ada sings. " * 60, "max_tokens": 1}
    assert call(model, "completions", body).status == 400
    usage = ask(model, "completions", **body, truncate_prompt_tokens=4)["usage"]
    assert usage["prompt_tokens"] == 4
    for max_tokens in (1, 20):
        room = {"max_tokens": max_tokens, "truncate_prompt_tokens": -1}
        usage = ask(model, "completions", **{**body, **room})["usage"]
        assert usage["prompt_tokens"] == POSITIONS - max_tokens


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
@pytest.mark.parametrize("tokens", [0, POSITIONS + 1])
def test_a_prompt_is_not_cut_to_nothing_or_to_more_than_the_model_takes(
    model: Served, path: str, tokens: int
) -> None:
    inputs = {"prompt": "Ada"} if path == "completions" else {"messages": CHAT}
    body = {**inputs, **FEW, "truncate_prompt_tokens": tokens}
    answer = call(model, path, body)
    error = read_json(answer.body)["error"]
    limit = [POSITIONS] if tokens else []
    assert (answer.status, error["message"]) == (400, Sentence(tokens, *limit))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": CHAT, **FEW}),
        ("chat/completions", {"messages": CHAT, "stop": ["e"], "max_tokens": 20}),
        ("completions", {"prompt": ["Ada", "Nina"], **FEW}),
        ("completions", {"prompt": "Ada", "n": 2, "seed": 5, **FEW}),
        ("completions", {"prompt": ["Ada", "Nina"], "n": 3, "seed": 5, "echo": True, **FEW}),
        ("chat/completions", {"messages": CHAT, "n": 2, "seed": 5, "stop": "e", **FEW}),
        ("completions", {"prompt": ["Ada", "Nina"], "n": 2, "temperature": 0, **FEW}),
        ("completions", {"prompt": "Ada", "echo": True, **FEW}),
        ("completions", {"prompt": [[5, 6], [7, 8]], **FEW}),
        ("completions", {"prompt": [5, 6, 7, 8], "echo": True, **FEW}),
        ("completions", {"prompt": ["Ada", "Nina"], "logprobs": 2, "stop": "e", **FEW}),
        ("completions", {"prompt": "Ada", "n": 2, "seed": 5, "logprobs": 0, **FEW}),
        ("chat/completions", {"messages": CHAT, "logprobs": True, "top_logprobs": 2, **FEW}),
    ],
)
def test_a_stream_adds_up_to_the_answer(model: Served, path: str, body: Any) -> None:
    whole = ask(model, path, **body)
    sent: Sent = []
    usage = {"include_usage": True, "continuous_usage_stats": True}
    options = {"stream": True, "stream_options": usage}
    last = call(model, path, {**body, **options}, sent)
    *parts, end = events(*sent, last)
    assert end["choices"] == [] and end["usage"] == whole["usage"]
    assert len({part["id"] for part in parts}) == 1
    for choice in whole["choices"]:
        assert joined(parts, choice["index"]) == choice.get("text", choice.get("message"))
        assert ends(parts, choice["index"]) == [choice["finish_reason"]]
        assert joined_logprobs(parts, choice["index"]) == choice["logprobs"]


@pytest.mark.parametrize("top", [None, 0, 3])
def test_a_chat_has_its_tokens_with_log_probabilities(model: Served, top: int | None) -> None:
    settings = {"messages": CHAT, "logprobs": True, "top_logprobs": top, **FEW}
    (choice,) = ask(model, "chat/completions", **settings)["choices"]
    given = {"return_full_text": False, "details": True, "top_n_tokens": top or 0}
    ((same,),) = [model.ask(CHAT, max_new_tokens=6, **given)]
    tokens, content = same["details"]["tokens"], choice["logprobs"]["content"]
    assert "".join(each["token"] for each in content) == choice["message"]["content"]
    assert [each["logprob"] for each in content] == [token["logprob"] for token in tokens]
    whole = [each for each in content if each["token"].isascii() and each["token"]]
    assert whole and all(each["bytes"] == list(each["token"].encode()) for each in whole)
    likely = [[each["logprob"] for each in token["top_logprobs"]] for token in content]
    expected = same["details"].get("top_tokens", [[]] * len(tokens))
    assert likely == [[each["logprob"] for each in top] for top in expected]


def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(model: Served) -> None:
    # Tokens at random have parts of characters that no other part follows.
    settings = {"n": 4, "seed": 3, "temperature": 2, "max_tokens": 40, "logprobs": True}
    choices = ask(model, "chat/completions", messages=CHAT, **settings)["choices"]
    texts = [choice["message"]["content"] for choice in choices]
    raw = [[bytes(each["bytes"]) for each in choice["logprobs"]["content"]] for choice in choices]
    assert [b"".join(each).decode(errors="replace") for each in raw] == texts
    assert "\N{REPLACEMENT CHARACTER}" in "".join(texts)


def test_a_completion_has_its_tokens_with_log_probabilities(model: Served) -> None:
    settings = {"prompt": "Ada", "logprobs": 2, "max_tokens": 12}
    (choice,) = ask(model, "completions", **settings)["choices"]
    found = choice["logprobs"]
    assert "".join(found["tokens"]) == choice["text"]
    for token, start in zip(found["tokens"], found["text_offset"], strict=True):
        assert choice["text"].startswith(token, start)
    for token, logprob, top in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert top[token] == logprob and len(top) <= 3
        assert max(top.values()) == logprob  # of greedy decoding
    (without,) = ask(model, "completions", prompt="Ada", max_tokens=12)["choices"]
    assert without == {**choice, "logprobs": None}


def test_a_text_without_a_maximum_may_have_all_positions_of_the_model(
    served: Callable[..., Served], checkpoint: Callable[..., Path], model: Served
) -> None:
    for body in ({"prompt": "Ada"}, {"prompt": "Ada " * 9, "stream": False}):
        usage = ask(model, "completions", **body)["usage"]
        assert usage["total_tokens"] == 128
    assert ask(model, "chat/completions", messages=CHAT)["usage"]["total_tokens"] == 128
    limited = served("text_generation", family="GPT2", max_total_tokens=40, max_length=30)
    assert ask(limited, "completions", prompt="Ada")["usage"]["total_tokens"] == 40
    few = {"parameters": {"max_new_tokens": 5}}
    default = Served(checkpoint("text_generation", family="GPT2"), "text_generation", **few)
    assert ask(default, "completions", prompt="Ada")["usage"]["completion_tokens"] == 5


def test_a_stream_is_sent_in_many_parts(model: Served) -> None:
    sent: Sent = []
    body = {"messages": CHAT, "max_tokens": 12, "stream": True}
    last = call(model, "chat/completions", body, sent)
    assert len(sent) > 3
    deltas = [part["choices"][0]["delta"] for part in events(*sent, last)]
    assert deltas[0]["role"] == "assistant" and deltas[-1] == {}
    assert not any("role" in delta for delta in deltas[1:])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": CHAT, "n": 3, "seed": 5}),
        ("completions", {"prompt": "Ada", "n": 2, "seed": 5, "stop": "e", "logprobs": 1}),
        ("completions", {"prompt": "Ada", "n": 2, "temperature": 0, "echo": True}),
    ],
)
def test_the_choices_of_a_stream_are_sent_side_by_side(
    model: Served, path: str, body: dict[str, Any]
) -> None:
    sent: Sent = []
    last = call(model, path, {**body, "max_tokens": 12, "stream": True}, sent)
    parts = events(*sent, last)[: len(sent)]
    numbers = [part["choices"][0]["index"] for part in parts]
    of_choices = [numbers.count(index) for index in range(body["n"])]
    assert min(of_choices) > 2
    assert numbers != sorted(numbers)
    for choice in ask(model, path, **body, max_tokens=12)["choices"]:
        text, found = choice.get("text"), joined(parts, choice["index"])
        if path.startswith("chat"):
            text, found = choice["message"]["content"], found["content"]
        assert found and text.startswith(found)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": CHAT, "n": 4, "seed": 5, "stop": ["e", "a"]}),
        ("completions", {"prompt": ["Ada", "Once"], "stop": ["e", "a"]}),
        ("completions", {"prompt": "Ada", "n": 4, "seed": 5, "logprobs": 1, "stop": ["e", "a"]}),
        ("completions", {"prompt": "Ada", "n": 4, "seed": 5, "max_tokens": 1}),
    ],
)
def test_a_choice_has_its_finish_reason_when_it_ends(
    model: Served, path: str, body: dict[str, Any]
) -> None:
    sent: Sent = []
    given = {"max_tokens": 20, "stream_options": {"include_usage": True}, **body}
    last = call(model, path, {**given, "stream": True}, sent)
    (usage,) = events(last)
    assert usage["choices"] == []
    parts = [part["choices"][0] for part in events(*sent, last)[:-1]]
    reasons = {part["index"]: part["finish_reason"] for part in parts if part["finish_reason"]}
    choices = ask(model, path, **{"max_tokens": 20, **body})["choices"]
    assert reasons == {each["index"]: each["finish_reason"] for each in choices}
    ended = [part["index"] for part in parts if part["finish_reason"]]
    assert len(ended) == len(choices)
    if "stop" in body:
        assert parts.index(next(each for each in parts if each["finish_reason"])) < len(parts) - 5


def test_a_stream_is_sent_as_a_whole_without_a_connection_for_parts(model: Served) -> None:
    body = {"prompt": "Ada", "stream": True, **FEW}
    parts = events(call(model, "completions", body))
    (choice,) = ask(model, "completions", prompt="Ada", **FEW)["choices"]
    assert joined(parts, 0) == choice["text"]


def test_a_stream_that_fails_ends_with_an_error_event(model: Served, monkeypatch: Any) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(model.engine.task, "decode", fail)
    body = {"prompt": "Ada", "stream": True, **FEW}
    sent: Sent = []
    last = call(model, "completions", body, sent)
    assert events(*sent, last)[-1]["error"]["type"] == "server_error"
    assert call(model, "completions", body).status == 500


def test_the_model_is_described(model: Served) -> None:
    for path in ("models", "v1/models"):
        assert [each["id"] for each in ask(model, path)["data"]] == ["model"]
    listed = ask(model, "v1/models/model")
    assert (listed["id"], listed["name"], listed["ready"]) == ("model", "model", True)


@pytest.mark.parametrize("name", ["another", "org/model"])
def test_another_model_is_not_found(model: Served, name: str) -> None:
    answer = call(model, f"v1/models/{name}")
    error = read_json(answer.body)["error"]
    assert (answer.status, error["code"]) == (404, "model_not_found")
    assert error["message"] == Sentence(name, "model")


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_each_part_has_the_fingerprint_of_the_system(model: Served, path: str) -> None:
    body = {"messages": CHAT} if path.startswith("chat") else {"prompt": "Ada"}
    whole = ask(model, path, **body, **FEW)
    parts = events(call(model, path, {**body, "stream": True, **FEW}))
    found = {each["system_fingerprint"] for each in [whole, *parts]}
    assert len(found) == 1 and found.pop().startswith("fp_")


def test_an_error_has_the_names_of_the_body(model: Served) -> None:
    for path, body, facts in (
        ("completions", {"prompt": ""}, ["prompt"]),
        ("chat/completions", {"messages": CHAT, "max_tokens": 999}, ["max_tokens", 999]),
        ("completions", {"prompt": ["Ada", 5]}, ["prompt"]),
        ("responses", {"input": ""}, ["input"]),
        ("responses", {"input": "a", "max_output_tokens": 999}, ["max_output_tokens"]),
    ):
        message = read_json(call(model, path, body).body)["error"]["message"]
        assert message == Sentence(*facts)
        assert not {"inputs", "max_new_tokens", "num_return_sequences"} & set(message.split())


@pytest.mark.parametrize(
    ("path", "body", "status", "facts"),
    [
        ("chat/completions", {}, 400, ["messages"]),
        ("chat/completions", {"messages": []}, 400, ["messages"]),
        ("chat/completions", {"messages": "hi"}, 400, ["hi", "messages"]),
        ("chat/completions", {"messages": [1]}, 400, ["messages.0", "1"]),
        ("chat/completions", {"messages": CHAT, "temperature": 3}, 400, ["temperature", "3"]),
        ("chat/completions", {"messages": CHAT, "max_tokens": 0}, 400, ["max_tokens", "0"]),
        ("chat/completions", {"messages": CHAT, "max_tokens": 999}, 400, ["prompt"]),
        ("completions", {"prompt": "Ada", "max_tokens": 0}, 400, ["max_tokens", 0, "echo"]),
        ("completions", {"prompt": "Ada", "max_tokens": -1}, 400, ["max_tokens", -1]),
        (
            "completions",
            {"prompt": "Ada", "logprobs": 21},
            400,
            ["logprobs", "21"],
        ),
        (
            "chat/completions",
            {"messages": CHAT, "top_logprobs": 2},
            400,
            ["top_logprobs"],
        ),
        (
            "chat/completions",
            {"messages": CHAT, "logprobs": True, "top_logprobs": 21},
            400,
            ["top_logprobs", "21"],
        ),
        (
            "chat/completions",
            {"messages": CHAT, "frequency_penalty": 3},
            400,
            ["frequency_penalty", "3"],
        ),
        (
            "chat/completions",
            {"messages": CHAT, "logit_bias": {"a": 1}},
            400,
            ["a", "logit_bias"],
        ),
        (
            "chat/completions",
            {"messages": CHAT, "functions": [{}]},
            422,
            ["functions"],
        ),
        (
            "chat/completions",
            {"messages": CHAT, "continue_final_message": True, "add_generation_prompt": True},
            400,
            ["continue_final_message", "add_generation_prompt"],
        ),
        (
            "chat/completions",
            {"messages": CHAT, "chat_template_kwargs": {"messages": []}},
            400,
            ["chat_template_kwargs", "messages"],
        ),
        (
            "chat/completions",
            {"messages": CHAT, "documents": [{"title": "a", "text": "b"}]},
            422,
            ["documents"],
        ),
        (
            "chat/completions",
            {"messages": CHAT, "reasoning_effort": "high"},
            422,
            ["reasoning_effort"],
        ),
        ("completions", {"prompt": "a", "stop_token_ids": [9999]}, 400, ["stop_token_ids", 9999]),
        ("completions", {"prompt": "a", "allowed_token_ids": []}, 400, ["allowed_token_ids"]),
        (
            "completions",
            {"prompt": "a", "stop_token_ids": [1] * 129},
            400,
            ["stop_token_ids", 129, 128],
        ),
        (
            "completions",
            {"prompt": "a", "stream": True, "stream_options": {"include_usage": 5}},
            400,
            ["stream_options.include_usage"],
        ),
        ("completions", {"prompt": []}, 400, ["prompt"]),
        ("completions", {"prompt": ["a"] * 129}, 413, ["prompt", "129"]),
        ("completions", {"prompt": ["a", ""]}, 400, ["prompt[1]"]),
        ("completions", {"prompt": [1, 9999]}, 400, ["9999"]),
        (
            "completions",
            {"prompt": [[1], [-1]]},
            400,
            ["prompt[1]", "1"],
        ),
        ("completions", {"prompt": [1] * 999}, 400, ["999"]),
        ("completions", {"prompt": [[1]] * 129}, 413, ["prompt", "129"]),
        ("completions", {"prompt": [1, True]}, 400, ["prompt"]),
        ("completions", {"prompt": [1.5, "a"]}, 400, ["prompt"]),
        ("completions", {"prompt": [[1], []]}, 400, ["prompt[1]"]),
        ("completions", [], 400, ["body"]),
        ("completions", b"{", 400, ["body"]),
        ("completions", None, 400, ["body"]),
        ("embeddings", {"input": "a"}, 422, ["text_generation"]),
        ("v1/moderations", {"input": "a"}, 422, ["text_generation", "handler.guard_family"]),
        ("v1/files", {"prompt": "a"}, 404, ["files"]),
        ("v1/chat/completions/5", {"messages": CHAT}, 404, ["chat/completions/5"]),
        ("v1", {"prompt": "a"}, 404, ["v1"]),
        ("completions", {"prompt": "a", "n": 2, "best_of": 3}, 422, ["best_of", 3, "n", 2]),
        ("chat/completions", {"messages": CHAT, "best_of": 2}, 422, ["best_of", 2, "n", 1]),
        ("completions", {"prompt": "a", "best_of": -1}, 400, ["best_of"]),
    ],
)
def test_a_request_that_cannot_be_answered_gets_openais_error(
    model: Served, path: str, body: Any, status: int, facts: list[str]
) -> None:
    answer = call(model, path, body)
    error = read_json(answer.body)["error"]
    assert (answer.status, error["type"]) == (status, "invalid_request_error")
    assert error["message"] == Sentence(*facts)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("chat/completions", {"messages": CHAT, "n": 0}, "n"),
        ("chat/completions", {"messages": CHAT, "temperature": 3}, "temperature"),
        (
            "chat/completions",
            {"messages": CHAT, "logprobs": True, "top_logprobs": 99},
            "top_logprobs",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "max_completion_tokens": 0},
            "max_completion_tokens",
        ),
        ("chat/completions", {"messages": CHAT, "best_of": 2}, "best_of"),
        ("chat/completions", {"messages": CHAT, "guided_regex": "("}, "guided_regex"),
        ("chat/completions", {"messages": CHAT, "documents": [{"text": "b"}]}, "documents"),
        ("chat/completions", {"messages": []}, "messages"),
        ("chat/completions", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ("chat/completions", {}, "messages"),
        ("completions", {"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias"),
        ("completions", {"prompt": "a", "structured_outputs": {"x": 1}}, "structured_outputs.x"),
        (
            "completions",
            {"prompt": "a", "response_format": {"type": "json_schema"}},
            "response_format",
        ),
        ("completions", {"prompt": ["a", ""]}, "prompt[1]"),
        ("completions", {"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ("completions", {"prompt": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ("responses", {"input": "a", "top_p": 2}, "top_p"),
        ("responses", {"input": [{"type": "item_reference"}]}, "input[0]"),
        ("responses", {"input": "a", "previous_response_id": "r"}, "previous_response_id"),
    ],
)
def test_an_error_names_the_key_that_it_is_about(
    model: Served, path: str, body: Any, param: str
) -> None:
    answer = call(model, path, body)
    error = read_json(answer.body)["error"]
    assert answer.status in (400, 413, 422)
    assert error["param"] == param, error["message"]


def test_an_error_that_is_about_no_key_names_none(model: Served) -> None:
    for path, body in [("completions", b"{"), ("v1/files", {}), ("embeddings", {"input": "a"})]:
        assert read_json(call(model, path, body).body)["error"]["param"] is None


INPUTS: Mapping[str, Any] = {
    "chat/completions": {"messages": CHAT},
    "completions": {"prompt": "a"},
    "responses": {"input": "a"},
}
NAMED_CALL = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    ("path", "given", "other"),
    [
        ("chat/completions", {"stream_options": {"include_usage": True}}, "stream"),
        ("chat/completions", {"stream_options": {}, "stream": False}, "stream"),
        ("completions", {"stream_options": {"include_usage": False}}, "stream"),
        ("responses", {"stream_options": {"include_obfuscation": False}}, "stream"),
        ("chat/completions", {"top_logprobs": 2}, "logprobs"),
        ("chat/completions", {"top_logprobs": 2, "logprobs": False}, "logprobs"),
        ("chat/completions", {"tool_choice": "auto"}, "tools"),
        ("responses", {"tool_choice": "required"}, "tools"),
        ("responses", {"tool_choice": {"type": "function", "name": "look"}}, "tools"),
        ("chat/completions", {"tool_choice": "required"}, "tools"),
        ("chat/completions", {"tool_choice": NAMED_CALL}, "tools"),
    ],
)
def test_a_key_that_needs_another_is_refused_without_it(
    model: Served, path: str, given: Any, other: str
) -> None:
    answer = call(model, path, {**INPUTS[path], **given})
    error = read_json(answer.body)["error"]
    name = next(iter(given))
    assert (answer.status, error["param"], error["code"]) == (400, name, None)
    assert (error["type"], error["message"]) == ("invalid_request_error", Sentence(name, other))


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("chat/completions", {"stream_options": None, "tool_choice": None, "top_logprobs": None}),
        ("chat/completions", {"tool_choice": "none", "parallel_tool_calls": False}),
        ("chat/completions", {"tool_choice": "auto", "tools": []}),
        ("completions", {"stream_options": None}),
        ("responses", {"tool_choice": "auto", "max_tool_calls": 2, "stream_options": None}),
    ],
)
def test_a_key_that_changes_nothing_needs_no_other(model: Served, path: str, given: Any) -> None:
    few = {"max_output_tokens": 2} if path == "responses" else FEW
    assert ask(model, path, **INPUTS[path], **few, **given)


def test_a_key_has_the_name_of_the_body(model: Served) -> None:
    answer = call(model, "completions", {"prompt": "a", "min_tokens": 9, "max_tokens": 2})
    message = read_json(answer.body)["error"]["message"]
    assert (answer.status, message) == (400, Sentence("min_tokens", 9, "max_tokens", 2))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["v1/chat/completions", "v1/completions"])
def test_explanations_are_refused_on_openais_paths(model: Served, path: str, stream: bool) -> None:
    body = {"messages": CHAT, "prompt": PROMPT, "stream": stream, **FEW}
    answer = call(model, path, body, explain="True")
    sentence = f"{path} explains nothing; send inputs without this path."
    assert (answer.status, read_json(answer.body)["error"]["message"]) == (422, sentence)


def test_a_model_that_generates_no_text_refuses_completions(served: Callable[..., Served]) -> None:
    answer = call(served("sequence_classification"), "v1/completions", {"prompt": "Ada"})
    assert answer.status == 422
    assert "sequence_classification" in read_json(answer.body)["error"]["message"]


def joined(parts: list[Any], index: int) -> Any:
    """Return the text, or the message, of the joined parts of a stream."""
    own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
    if "text" in own[0]:
        return "".join(each["text"] for each in own)
    return {key: "".join(each["delta"].get(key, "") for each in own) for key in ("role", "content")}


def joined_logprobs(parts: list[Any], index: int) -> Any:
    """Return the joined log probabilities of the parts of a stream; None where there are none."""
    own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
    found = [each["logprobs"] for each in own if each["logprobs"]]
    if not found:
        return None
    lists = [key for key, value in found[0].items() if value is not None]
    return {**found[0], **{key: [each for part in found for each in part[key]] for key in lists}}


def ends(parts: list[Any], index: int) -> list[str]:
    own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
    return [each["finish_reason"] for each in own if each["finish_reason"]]


@pytest.mark.parametrize("count", [0, 2])
def test_the_log_probabilities_of_a_prompt_have_the_shape_of_vllm(
    model: Served, count: int
) -> None:
    settings = {"prompt_logprobs": count, "max_tokens": 2}
    (echoed,) = ask(model, "completions", prompt="Ada sings", echo=True, logprobs=2)["choices"]
    (choice,) = ask(model, "completions", prompt="Ada sings", **settings)["choices"]
    assert choice["logprobs"] is None
    first, *others = choice["prompt_logprobs"]
    scores = echoed["logprobs"]
    assert first is None and others
    for found, text, logprob in zip(
        others, scores["tokens"][1:], scores["token_logprobs"][1:], strict=False
    ):
        own, *likely = found.values()
        assert (own["decoded_token"], own["logprob"]) == (text, pytest.approx(logprob))
        assert own["rank"] >= 1 and (own["rank"] <= count) == (len(likely) == count - 1)
        assert {each["rank"] for each in found.values()} == {*range(1, count + 1), own["rank"]}
        assert len(likely) in (count, max(0, count - 1))
    chat = ask(model, "chat/completions", messages=CHAT, **settings)
    assert chat["prompt_logprobs"][0] is None and chat["choices"][0]["logprobs"] is None
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]


def test_a_prompt_alone_is_scored(model: Served) -> None:
    settings = {"prompt_logprobs": 1, "max_tokens": 0}
    (choice,) = ask(model, "completions", prompt="Ada sings", **settings)["choices"]
    assert choice["text"] == "" and len(choice["prompt_logprobs"]) > 1


def test_the_log_probabilities_of_a_prompt_are_not_streamed(model: Served) -> None:
    answer = call(model, "completions", {"prompt": "a", "prompt_logprobs": 1, "stream": True})
    error = read_json(answer.body)["error"]
    assert (answer.status, error["param"]) == (400, "prompt_logprobs")
