"""Texts with grammars and tool calls, from models with random weights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hf_serve.handlers.errors import BadRequest
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.handlers.generation.test_chat import TEMPLATE, WITH_TOOLS
from tests.sentences import Sentence
from tests.serving import Served, stream_into
from tests.tiny_tokenizers import write_llama

MODE = "text_generation"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["fox", "bär"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
AS_JSON = {"type": "json", "value": SCHEMA}
AS_REGEX = {"type": "regex", "value": "[a-f]{3}-[0-9]{2}"}
# Log probabilities differ by rounding between a batch and a prompt alone.
NEW = {"return_full_text": False, "max_new_tokens": 90, "details": True, "logprobs": False}
DRAW = {**NEW, "do_sample": True, "temperature": 5.0}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "stop"}},
]
CHAT = [{"role": "user", "content": "Who?"}]
STOP = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
STRING = '{"a": "<tool_call>", "b": {"name": "stop", "arguments": {}}}'


# What a grammar makes of either tokenizer is tested in tests/handlers/generation.
@pytest.fixture(scope="module", params=["GPT-2", pytest.param("Llama", marks=pytest.mark.nightly)])
def model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Models with more ids than their tokenizers have."""
    folder: Path = tmp_path_factory.mktemp("model")
    if request.param == "GPT-2":
        tiny.write(folder, MODE, vocab_size=450)
    else:
        tiny.write(folder, MODE, family="Llama", vocab_size=450, eos_token_id=2)
        write_llama(folder)
    return Served(folder, MODE)


@pytest.fixture
def chat_model(served: Callable[..., Served], monkeypatch: Any) -> Iterator[Served]:
    model = served(MODE, max_length=60, max_characters=5_000)
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", WITH_TOOLS)
    yield model


def predict(model: Served, request: Request) -> list[Any]:
    return model.engine.predict([request])


def test_every_finished_text_is_json_of_its_schema(model: Served) -> None:
    bodies = [
        {"inputs": "Ada", "parameters": {**DRAW, "seed": seed, "grammar": AS_JSON}}
        for seed in range(8)
    ]
    results = [result for _, (result,) in model.post(*bodies)]
    ended = [each for each in results if each["details"]["finish_reason"] == "eos_token"]
    assert len(ended) > 4
    for each in ended:
        Draft202012Validator(SCHEMA).validate(json.loads(each["generated_text"]))


def test_rows_of_a_batch_have_each_its_own_grammar_or_none(model: Served) -> None:
    """A result is the same alone and together, and that of a neighbour without a grammar too."""
    given: list[dict[str, Any]] = [
        {"grammar": AS_JSON},
        {},
        {"grammar": AS_REGEX},
        {"stop": "a"},
        {"grammar": AS_REGEX, "min_new_tokens": 20},
        {"grammar": AS_JSON, "repetition_penalty": 1.5},
        {"grammar": AS_REGEX, "max_new_tokens": 2},
        {**DRAW, "seed": 3, "num_return_sequences": 3, "grammar": AS_REGEX},
    ]
    bodies = [{"inputs": "Once upon", "parameters": {**NEW, **each}} for each in given]
    together = model.post(*bodies)
    assert together == [model.post(body)[0] for body in bodies]
    assert {status for status, _ in together} == {200}
    for number in (2, 4, 7):
        for text in together[number][1]:
            assert re.fullmatch(AS_REGEX["value"], text["generated_text"])
    assert together[6][1][0]["details"]["finish_reason"] == "length"


def test_a_grammar_and_excluded_tokens_both_hold(served: Callable[..., Served]) -> None:
    """The text ends where the grammar does, whether its end token is allowed or not."""
    model = served(MODE, family="GPT2")
    letter = {**NEW, "grammar": {"type": "regex", "value": "[ab]"}}
    first = model.ask("Ada", **letter)[0]["generated_text"]
    (other,) = {"a", "b"} - {first}
    token = model.engine.task.checkpoint.tokenizer.convert_tokens_to_ids(other)
    for given in ({"bad_words": [first]}, {"allowed_token_ids": [token]}):
        (found,) = model.ask("Ada", **letter, **given)
        assert (found["generated_text"], found["details"]["finish_reason"]) == (other, "eos_token")
    alone = model.post({"inputs": "Ada", "parameters": {**letter, "bad_words": [first]}})
    stuck = {"inputs": "Ada", "parameters": {**letter, "bad_words": ["a", "b"]}}
    both = model.post({"inputs": "Ada", "parameters": {**letter, "bad_words": [first]}}, stuck)
    assert both[:1] == alone
    assert (both[1][0], both[1][1]["message"]) == (422, Sentence("bad_words", "allowed_token_ids"))


def test_a_text_with_a_grammar_streams(model: Served) -> None:
    parts: list[str] = []
    request = Request("Ada", {**NEW, "grammar": AS_REGEX}, stream=stream_into(parts))
    ((answer,),) = predict(model, request)
    assert "".join(parts) == answer["generated_text"] and len(parts) > 1


def test_a_required_call_is_returned_as_data(chat_model: Served) -> None:
    given = {**NEW, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    (result,) = chat_model.ask(CHAT, **given)
    ((call,), text) = result["tool_calls"], result["generated_text"]
    assert text == "" and call["type"] == "function"
    assert call["function"]["name"] in ("weather", "stop")
    assert isinstance(json.loads(call["function"]["arguments"]), dict)
    (whole,) = chat_model.ask(CHAT, **{**given, "return_full_text": True})
    assert whole["generated_text"] == [
        *CHAT,
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


def test_the_named_function_is_called_once(chat_model: Served) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    given = {**DRAW, "tools": TOOLS, "tool_choice": choice}
    results = [result for seed in range(6) for result in chat_model.ask(CHAT, seed=seed, **given)]
    ended = [each for each in results if each["details"]["finish_reason"] == "eos_token"]
    assert ended
    for result in ended:
        ((call,), text) = result["tool_calls"], result["generated_text"]
        assert (call["function"]["name"], text) == ("weather", "")
        Draft202012Validator(SCHEMA).validate(json.loads(call["function"]["arguments"]))


@pytest.mark.parametrize("mark", ["<tool_call>", "[TOOL_CALLS]", '"parameters": '])
@pytest.mark.parametrize("most", [2, 15])
def test_a_call_that_is_cut_is_no_part_of_the_text(
    chat_model: Served, monkeypatch: pytest.MonkeyPatch, mark: str, most: int
) -> None:
    template = f"{{% if tools %}}{{# {mark} #}}{{% endif %}}{TEMPLATE}"
    monkeypatch.setattr(chat_model.engine.task.checkpoint.tokenizer, "chat_template", template)
    given = {**NEW, "tools": TOOLS, "tool_choice": "required", "max_new_tokens": most}
    (result,) = chat_model.ask(CHAT, **given)
    assert (result["generated_text"], "tool_calls" in result) == ("", False)
    assert result["details"]["finish_reason"] == "length"
    parts: list[str] = []
    predict(chat_model, Request(CHAT, given, stream=stream_into(parts)))
    assert "".join(parts) == ""


def test_two_functions_of_one_name_are_refused(chat_model: Served) -> None:
    status, sentence = chat_model.refuse(CHAT, tools=[*TOOLS, TOOLS[0]])
    assert status == 400
    assert sentence == Sentence("tools", "weather")


def test_calls_are_answered_in_the_next_turn(chat_model: Served) -> None:
    choice = {"type": "function", "function": {"name": "stop"}}
    (first,) = chat_model.ask(CHAT, max_new_tokens=60, tools=TOOLS, tool_choice=choice)
    turns = [*first["generated_text"], {"role": "tool", "content": "Done."}]
    (second,) = chat_model.ask(turns, max_new_tokens=3, tools=TOOLS)
    assert second["generated_text"][: len(turns) - 2] == CHAT


def test_without_a_choice_to_call_the_tools_are_not_mentioned(chat_model: Served) -> None:
    (plain,) = chat_model.ask(CHAT, **NEW)
    assert chat_model.ask(CHAT, **NEW, tools=TOOLS, tool_choice="none") == [plain]


def writing(task: Any, text: str) -> Callable[..., Any]:
    """Return what `generate` would do if the model wrote a text."""
    tokens = [*task.tokenizer(text)["input_ids"], task.generation_config.eos_token_id]

    def generate(batch: Any, config: Any, stopping_criteria: Any, **_: Any) -> Any:
        ids = batch["input_ids"]
        for token in tokens:
            ids = ids.new_tensor([[*ids[0].tolist(), token]])
            stopping_criteria(ids, None)
        return ids

    return generate


@pytest.mark.parametrize(
    ("grammar", "text", "content", "calls"),
    [
        (None, f"I look.{STOP}", "I look.", 1),
        (None, f"{STOP}\n{STOP}", "", 2),
        (None, f"I look.{STOP[:20]}", "I look.", 0),
        (None, "I <tool> look.", "I <tool> look.", 0),
        (AS_JSON, STOP, "", 1),
        # A string of an answer may have the opening of calls.
        (AS_JSON, STRING, STRING, 0),
    ],
)
def test_the_text_before_calls_is_streamed(
    chat_model: Served,
    monkeypatch: pytest.MonkeyPatch,
    grammar: Any,
    text: str,
    content: str,
    calls: int,
) -> None:
    monkeypatch.setattr(chat_model.engine.model, "generate", writing(chat_model.engine.task, text))
    parts: list[str] = []
    given = {**NEW, "max_new_tokens": 110, "tools": TOOLS, "grammar": grammar}
    ((result,),) = predict(chat_model, Request(CHAT, given, stream=stream_into(parts)))
    assert result["generated_text"] == content
    sent = "".join(parts)
    assert content.startswith(sent) and sent.startswith(content.partition("<")[0])
    call = {"type": "function", "function": {"name": "stop", "arguments": "{}"}}
    assert result.get("tool_calls", []) == [call] * calls


def test_a_grammar_that_is_too_complex_ends_its_row_alone(model: Served) -> None:
    wide = {"type": "object", "properties": {f"p{number}": {} for number in range(1_100)}}
    bodies = [
        {"inputs": "Ada", "parameters": {**NEW, "grammar": {"type": "json", "value": schema}}}
        for schema in (json.dumps(wide), SCHEMA)
    ]
    (status, error), fine = model.post(*bodies)
    assert status == 422 and "became too complex after" in error["message"]
    assert fine == model.post(bodies[1])[0]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"properties": {"a": schema}, "required": ["a"], "type": "object"}
    return schema


@pytest.mark.parametrize("text", [False, True])
def test_a_schema_that_is_nested_too_deep_is_refused(model: Served, text: bool) -> None:
    schema = json.dumps(nested(400)) if text else nested(2_000)
    grammar = {"type": "json", "value": schema}
    (outcome,) = predict(model, Request("Ada", {**NEW, "grammar": grammar}))
    assert isinstance(outcome, BadRequest)
    assert str(outcome) == Sentence("64")


@pytest.mark.parametrize("kind", ["array", "boolean", ["string", "null"]])
def test_arguments_that_are_no_object_are_refused(chat_model: Served, kind: Any) -> None:
    function = {"name": "look", "parameters": {"type": kind}}
    status, text = chat_model.refuse(CHAT, tools=[{"type": "function", "function": function}])
    assert (status, text) == (400, Sentence("parameters", "object"))


def test_arguments_that_are_nested_too_deep_are_refused(chat_model: Served) -> None:
    function = {"name": "weather", "parameters": nested(2_000)}
    tools = [{"type": "function", "function": function}]
    (outcome,) = predict(chat_model, Request(CHAT, {**NEW, "tools": tools}))
    assert isinstance(outcome, BadRequest)
    assert str(outcome) == Sentence("tools.0.function.parameters", 64)


@pytest.mark.parametrize(
    ("given", "status", "facts"),
    [
        ({"grammar": AS_REGEX, "num_beams": 2}, 422, ["grammar"]),
        ({"grammar": {"type": "json", "value": "{"}}, 400, ["grammar"]),
        ({"grammar": {"type": "json", "value": 7}}, 400, ["JSON"]),
        ({"grammar": {"type": "regex", "value": "("}}, 400, ["grammar"]),
        ({"grammar": {"type": "regex", "value": "a" * 300_000}}, 413, ["max_grammar_characters"]),
        ({"grammar": {"type": "xml", "value": ""}}, 400, ["xml", "grammar.type"]),
        ({"grammar": "json"}, 400, ["json", "grammar"]),
        ({"tools": TOOLS}, 400, ["tools"]),
        ({"tools": [{}]}, 400, ["tools.0.type"]),
        ({"tool_choice": "required"}, 400, ["tool_choice"]),
        ({"tool_choice": "always"}, 400, ["tool_choice"]),
    ],
)
def test_what_cannot_be_followed_is_refused(
    model: Served, given: Any, status: int, facts: list[str]
) -> None:
    found, message = model.refuse("Ada", **given)
    assert (found, message) == (status, Sentence(*facts))
