"""Keys of vLLM in the requests and responses of OpenAI's API: ids of tokens, and why texts end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.handlers.generation.test_chat import CHAT
from tests.handlers.protocols.openai.test_openai import FEW, Sent, ask, events
from tests.handlers.protocols.openai.test_openai import model as model  # noqa: PLC0414 - a fixture
from tests.sentences import Sentence
from tests.serving import Served, call, read_json
from tests.tiny_tokenizers import POSITIONS

PATHS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": CHAT},
    "completions": {"prompt": "Ada"},
}
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


SAYING = "An apple a day, keeps"
CONTINUED = [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": SAYING}]
CONTINUES = {"continue_final_message": True, "add_generation_prompt": False}


@pytest.mark.parametrize(
    "content", [SAYING, [{"type": "text", "text": SAYING}], [{"text": SAYING}]]
)
def test_echo_returns_the_message_that_a_chat_continues(model: Served, content: Any) -> None:
    body = {"messages": [CONTINUED[0], {"role": "assistant", "content": content}], **FEW}
    (choice,) = ask(model, "chat/completions", **body, **CONTINUES)["choices"]
    text = SAYING + choice["message"]["content"]
    echoes = {**body, **CONTINUES, "echo": True, "logprobs": True}
    (echoed,) = ask(model, "chat/completions", **echoes)["choices"]
    assert echoed["message"]["content"] == text
    assert len(echoed["logprobs"]["content"]) == FEW["max_tokens"]
    parts = streamed(model, "chat/completions", **echoes)
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in parts) == text


def test_echo_returns_no_message_of_another_role(model: Served) -> None:
    body = {"messages": CONTINUED[:1], **FEW}
    plain = ask(model, "chat/completions", **body)["choices"]
    assert ask(model, "chat/completions", **body, echo=True)["choices"] == plain


@every_path
def test_a_prompt_is_cut_at_either_side(model: Served, path: str, body: Any) -> None:
    body = (
        {**body, **IDS, **FEW}
        if path.startswith("chat")
        else {"prompt": "Ada sings of a fox", **IDS, **FEW}
    )
    ids = prompt_ids(ask(model, path, **body))
    assert len(ids) > 4
    cut = {"truncate_prompt_tokens": 4}
    for side, expected in (("left", ids[-4:]), ("right", ids[:4]), (None, ids[-4:])):
        given = {**body, **cut, "truncation_side": side}
        assert prompt_ids(ask(model, path, **given)) == expected
        if path == "completions":
            assert prompt_ids(ask(model, path, **{**given, "prompt": ids})) == expected


@pytest.mark.parametrize(
    ("path", "given", "param"),
    [
        ("chat/completions", {"seed": 2**63}, "seed"),
        ("completions", {"seed": -(2**63) - 1}, "seed"),
        ("completions", {"prompt": [-1]}, "prompt"),
        ("completions", {"prompt": [[]]}, "prompt"),
        ("completions", {"truncation_side": "middle"}, "truncation_side"),
        ("chat/completions", {"top_logprobs": 1}, "top_logprobs"),
    ],
)
def test_what_vllm_refuses_is_refused(model: Served, path: str, given: Any, param: str) -> None:
    answer = call(model, path, {**PATHS[path], **given})
    assert (answer.status, read_json(answer.body)["error"]["param"]) == (400, param)


@pytest.mark.parametrize("key", ["structured_outputs", "guided_json"])
def test_a_named_function_excludes_a_grammar(model: Served, key: str) -> None:
    grammar: Any = {"json": {"type": "object"}}
    tool = {"type": "function", "function": {"name": "look"}}
    body = {"messages": CHAT, "tools": [tool], "tool_choice": tool}
    given = grammar if key == "structured_outputs" else grammar["json"]
    answer = call(model, "chat/completions", {**body, key: given})
    error = read_json(answer.body)["error"]
    assert (answer.status, error["message"]) == (400, Sentence(key, "tool_choice"))


@pytest.mark.parametrize(
    "given",
    [
        {"seed": -(2**63)},
        {"thinking_token_budget": -1},
        {"stream": True, "stream_options": {"include_usage": None}},
        {"top_logprobs": 0},
    ],
)
def test_what_vllm_takes_is_taken(model: Served, given: Any) -> None:
    for path, body in PATHS.items():
        if path == "completions":
            given = {key: value for key, value in given.items() if key != "top_logprobs"}
        assert call(model, path, {**body, **FEW, **given}).status == 200
