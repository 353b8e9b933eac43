"""Keys of vLLM in the requests and responses of OpenAI's API: ids of tokens, and why texts end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.handlers.generation.test_chat import CHAT
from tests.handlers.protocols.openai.test_openai import FEW, Sent, ask, call, events
from tests.handlers.protocols.openai.test_openai import model as model  # noqa: PLC0414 - a fixture
from tests.serving import Served
from tests.tiny_tokenizers import POSITIONS

PATHS = {"chat/completions": {"messages": CHAT}, "completions": {"prompt": "Ada"}}
every_path = pytest.mark.parametrize(("path", "body"), PATHS.items())
IDS = {"return_token_ids": True}


def decoded(model: Served, ids: list[int], **options: Any) -> str:
    text: str = model.engine.task.checkpoint.tokenizer.decode(ids, **options)
    return text


def streamed(model: Served, path: str, **body: Any) -> list[Any]:
    """Return the parts of a stream."""
    sent: Sent = []
    last = call(model, path, {**body, "stream": True}, sent)
    return events(*sent, last)


def prompt_ids(answer: Any) -> Any:
    """Return the ids of the prompt: a chat has one prompt, and completions may have several."""
    place = answer if answer["object"].startswith("chat") else answer["choices"][0]
    return place["prompt_token_ids"]


@every_path
def test_keys_that_are_not_requested_are_null(model: Served, path: str, body: Any) -> None:
    answer = ask(model, path, **body, **FEW)
    (choice,) = answer["choices"]
    of_prompt = answer if path.startswith("chat") else choice
    assert choice["stop_reason"] is None and choice["token_ids"] is None
    assert of_prompt["prompt_logprobs"] is None and of_prompt["prompt_token_ids"] is None


@every_path
def test_ids_are_those_of_the_prompt_and_of_the_text(model: Served, path: str, body: Any) -> None:
    answer = ask(model, path, **body, **IDS, **FEW)
    (choice,) = answer["choices"]
    text = choice["message"]["content"] if path.startswith("chat") else choice["text"]
    assert len(choice["token_ids"]) == answer["usage"]["completion_tokens"]
    assert decoded(model, choice["token_ids"], skip_special_tokens=True) == text
    assert len(prompt_ids(answer)) == answer["usage"]["prompt_tokens"]
    if path == "completions":
        assert decoded(model, prompt_ids(answer)) == "Ada"
    assert choice["logprobs"] is None


def test_each_prompt_and_each_text_has_its_ids(model: Served) -> None:
    body = {"prompt": ["Ada", "Nina"], "n": 2, "seed": 5, "temperature": 2, **IDS, **FEW}
    choices = ask(model, "completions", **body)["choices"]
    prompts = [decoded(model, each["prompt_token_ids"]) for each in choices]
    assert prompts == ["Ada", "Ada", "Nina", "Nina"]
    texts = [decoded(model, each["token_ids"], skip_special_tokens=True) for each in choices]
    assert texts == [each["text"] for each in choices]


@every_path
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"n": 2, "temperature": 0},
        {"n": 2, "seed": 5, "temperature": 2},
        {"logprobs": 1},
        {"echo": True},
    ],
    ids=["one", "equal", "different", "scored", "echo"],
)
def test_the_parts_of_a_stream_have_the_ids_once(
    model: Served, path: str, body: Any, more: Any
) -> None:
    if path.startswith("chat"):
        more = {key: True if key == "logprobs" else value for key, value in more.items()}
        more.pop("echo", None)
    whole = ask(model, path, **body, **more, **IDS, **FEW)
    parts = streamed(model, path, **body, **more, **IDS, **FEW)
    for choice in whole["choices"]:
        own = [each for each in parts if each["choices"][0]["index"] == choice["index"]]
        ids = [token for each in own for token in each["choices"][0]["token_ids"]]
        assert ids == choice["token_ids"]
        assert prompt_ids(own[0]) == prompt_ids(whole)
        assert "prompt_token_ids" not in {**own[1], **own[1]["choices"][0]}


@every_path
def test_a_stop_string_is_the_reason_for_the_end(model: Served, path: str, body: Any) -> None:
    ((whole,),) = [ask(model, path, **body, **IDS, **FEW)["choices"]]
    text = decoded(model, whole["token_ids"])
    stop = text[3:5]
    (choice,) = ask(model, path, **body, **IDS, **FEW, stop=[stop])["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    # The text ends before the stop string, and the ids have it.
    assert stop in decoded(model, choice["token_ids"])
    assert choice["token_ids"] == whole["token_ids"][: len(choice["token_ids"])]
    *others, last = streamed(model, path, **body, **FEW, stop=[stop])
    assert last["choices"][0]["stop_reason"] == stop
    assert all("stop_reason" not in each["choices"][0] for each in others)


@every_path
def test_a_stop_token_is_the_reason_for_the_end(model: Served, path: str, body: Any) -> None:
    (whole,) = ask(model, path, **body, **IDS, **FEW)["choices"]
    token = whole["token_ids"][2]
    count = whole["token_ids"].index(token) + 1
    for streams in (False, True):
        settings = {**body, **IDS, **FEW, "stop_token_ids": [token]}
        if streams:
            parts = streamed(model, path, **settings)
            ids = [each for part in parts for each in part["choices"][0]["token_ids"]]
            reason = parts[-1]["choices"][0]["stop_reason"]
        else:
            (choice,) = ask(model, path, **settings)["choices"]
            ids, reason = choice["token_ids"], choice["stop_reason"]
        assert (reason, ids) == (token, whole["token_ids"][:count])


def test_log_probabilities_have_ids_instead_of_texts(model: Served) -> None:
    shown = {"return_tokens_as_token_ids": True, **IDS, **FEW}
    body = {"prompt": "Ada", "logprobs": 2, "echo": True}
    (texts,) = ask(model, "completions", **body, **FEW)["choices"]
    (choice,) = ask(model, "completions", **body, **shown)["choices"]
    names = [f"token_id:{each}" for each in choice["prompt_token_ids"] + choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == names
    assert choice["logprobs"]["text_offset"] == texts["logprobs"]["text_offset"]
    for name, likely in zip(names[1:], choice["logprobs"]["top_logprobs"][1:], strict=True):
        assert name in likely and all(each.startswith("token_id:") for each in likely)
    parts = streamed(model, "completions", **body, **shown)
    found = [each["choices"][0]["logprobs"] for each in parts]
    assert [token for each in found if each for token in each["tokens"]] == names

    chat = {"messages": CHAT, "logprobs": True, "top_logprobs": 2}
    (choice,) = ask(model, "chat/completions", **chat, **shown)["choices"]
    (texts,) = ask(model, "chat/completions", **chat, **FEW)["choices"]
    content = choice["logprobs"]["content"]
    assert [each["token"] for each in content] == [f"token_id:{i}" for i in choice["token_ids"]]
    assert [each["bytes"] for each in content] == [
        each["bytes"] for each in texts["logprobs"]["content"]
    ]
    assert all(
        top["token"].startswith("token_id:") for each in content for top in each["top_logprobs"]
    )


@every_path
@pytest.mark.parametrize("choices", [1, 2])
def test_each_part_of_a_stream_counts_the_tokens_so_far(
    model: Served, path: str, body: Any, choices: int
) -> None:
    settings = {**body, **FEW, "n": choices, "temperature": 0}
    usage = ask(model, path, **settings)["usage"]
    options = {"include_usage": True, "continuous_usage_stats": True}
    *parts, end = streamed(model, path, **settings, stream_options=options)
    assert end["usage"] == usage
    assert {each["usage"]["prompt_tokens"] for each in parts} == {usage["prompt_tokens"]}
    for number in range(choices):
        own = [each for each in parts if each["choices"][0]["index"] == number]
        counts = [each["usage"]["completion_tokens"] for each in own]
        assert counts == sorted(counts) and 0 < counts[0] < counts[-1]
        assert counts[-1] == usage["completion_tokens"] // choices
    for options["include_usage"], count in ((False, 0), (True, 1)):
        options["continuous_usage_stats"] = not options["include_usage"]
        parts = streamed(model, path, **settings, stream_options=options)
        assert len([each for each in parts if "usage" in each]) == count


def test_the_list_of_models_has_the_limit_of_texts(model: Served) -> None:
    (listed,) = ask(model, "v1/models")["data"]
    assert (listed["root"], listed["max_model_len"]) == ("model", POSITIONS)
    assert ask(model, "v1/models/model")["max_model_len"] == POSITIONS
