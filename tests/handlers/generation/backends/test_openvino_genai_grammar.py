"""Grammars and calls of tools with openvino-genai, which compiles them with xgrammar."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import BadRequest, Overloaded, Unprocessable
from hf_serve.handlers.generation.backends.openvino_genai import check_pattern, check_schema
from hf_serve.handlers.types.request import Request, TextStream
from tests import tiny
from tests.handlers.generation.test_chat import CHAT, TEMPLATE
from tests.handlers.generation.test_tool_call_grammar import ARGUMENT_VALUES, SHAPES, UNIT
from tests.sentences import Sentence, refused

# The engine is another process.
pytestmark = [pytest.mark.openvino, pytest.mark.server]

MODE = "text_generation"
PROMPT = "Once upon a time"
POSITIONS = 1024
PERSON = {
    "type": "object",
    "properties": {"kind": {"enum": ["fox", "bear"]}, "age": {"type": "integer", "maximum": 20}},
    "required": ["kind", "age"],
    "additionalProperties": False,
}
FREE = {"max_new_tokens": 40, "return_full_text": False}
# A tiny model repeats itself, whitespace too, unless that is penalized.
BOUND = {
    **FREE,
    "max_new_tokens": 400,
    "details": True,
    "logprobs": False,
    "frequency_penalty": 2.0,
}
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": PERSON, "strict": True}},
    {"type": "function", "function": {"name": "stop"}},
]
LOOK = {"type": "function", "function": {"name": "look"}}


def config(**handler: Any) -> ModelConfig:
    tokenizer = {"model_max_length": POSITIONS}
    section = {"mode": MODE, "save_mode": "openvino", "tokenizer": tokenizer, **handler}
    return ModelConfig.parse({"continuousBatching": True, "handler": section})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.write(tmp_path_factory.mktemp("genai"), MODE, n_positions=POSITIONS)
    formats.export(folder, config(), folder)
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    """An engine of an archive without the weights of the checkpoint."""
    # In bfloat16 the last bits of logits depend on what else is in a step.
    return Engine.load(folder, config(dtype="float32", captum_explanation=False))


def bound(kind: str, value: Any, **parameters: Any) -> Request:
    """Return a request for a text that matches a grammar."""
    return Request(PROMPT, {"grammar": {"type": kind, "value": value}, **BOUND, **parameters})


def generated(engine: Engine, request: Request) -> tuple[str, str]:
    """Return the text of a request and what ended it."""
    [found] = all_generated(engine, [request])
    return found


def all_generated(engine: Engine, requests: Sequence[Request]) -> list[tuple[str, str]]:
    """Return the texts of requests that run together and what ended each of them."""
    outcomes: Any = engine.predict(requests)
    assert all(isinstance(outcome, list) for outcome in outcomes), outcomes
    return [
        (outcome[0]["generated_text"], outcome[0]["details"]["finish_reason"])
        for outcome in outcomes
    ]


def refusal(engine: Engine, request: Request) -> str:
    [outcome] = engine.predict([request])
    assert isinstance(outcome, Unprocessable), outcome
    return str(outcome)


@pytest.mark.parametrize("sampling", [{}, {"do_sample": True, "temperature": 1.5, "seed": 4}])
@pytest.mark.parametrize(
    "others", [{}, pytest.param({"logprobs": True}, marks=pytest.mark.nightly), {"stop": ["}}}"]}]
)
def test_a_text_matches_its_schema_and_ends_with_it(
    engine: Engine, sampling: dict[str, Any], others: dict[str, Any]
) -> None:
    text, reason = generated(engine, bound("json", PERSON, **sampling, **others))
    assert reason == "eos_token"
    Draft202012Validator(PERSON).validate(json.loads(text))


VALUES: dict[str, dict[str, Any]] = {
    "a": {"type": "string", "maxLength": 3},
    "b": {"type": "string", "minLength": 2, "maxLength": 5},
    "c": {"type": ["string", "null"], "maxLength": 2},
    "d": {"type": "string", "pattern": r"^[a-c]{2}-\d(fox|é)?$"},
    "e": {"type": "integer", "minimum": -3, "maximum": 12},
    "f": {"$ref": "#/$defs/short"},
}


def test_sampled_values_are_json_and_keep_to_their_schema(engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": VALUES,
        "required": list(VALUES),
        "$defs": {"short": {"type": "string", "minLength": 1, "maxLength": 2}},
    }
    hot = {"do_sample": True, "temperature": 3.0, "top_k": 0, "frequency_penalty": 0.0}
    for found, _ in all_generated(
        engine, [bound("json", schema, seed=seed, **hot) for seed in range(16)]
    ):
        read = json.loads(found)
        assert read.keys() == VALUES.keys()
        for name, value in read.items():
            # xgrammar takes bytes that are no character for one, and they are read as several.
            if "\ufffd" not in str(value):
                Draft202012Validator({**schema, "required": []}).validate({name: value})


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        ({"type": "number", "minimum": 0, "maximum": 1}, ["maximum"]),
        ({"type": ["null", "number"], "exclusiveMinimum": 0}, ["exclusiveMinimum"]),
        ({"type": "string", "pattern": '^a"b$'}, []),
        ({"type": "string", "pattern": r"^\\$"}, []),
        ({"type": "string", "pattern": r"^\s{2}$"}, []),
        ({"type": "string", "pattern": "^[^a]$"}, []),
        ({"type": "string", "pattern": "^[ -~]$"}, []),
        ({"type": "string", "pattern": "^a|b$"}, []),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        "properties",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("items", "patternProperties")),
    ],
)
def test_values_that_the_engine_would_write_wrongly_are_refused(
    engine: Engine, value: dict[str, Any], facts: list[str], place: str
) -> None:
    """Also without `strict`: with the weights of the checkpoint, these write them."""
    schema = {place: value if place == "items" else {"a": value}}
    assert refusal(engine, bound("json", schema)) == Sentence(*facts)


def test_a_text_matches_its_regular_expression_also_in_a_stream(engine: Engine) -> None:
    request = bound("regex", "[0-9]{3}/[a-f]+é")
    text, reason = generated(engine, request)
    assert reason == "eos_token"
    assert re.fullmatch("[0-9]{3}/[a-f]+é", text)
    parts: list[str] = []
    stream = TextStream(lambda part, _: parts.append(part))
    engine.predict([Request(PROMPT, request.parameters, stream=stream)])
    assert len(parts) > 1
    assert text.startswith("".join(parts))


FREE_JSON: dict[str, Any] = {
    "an object": {"type": "object"},
    "a list": {"type": "array"},
    "anything": {},
    "free keys": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 9}},
    "keys beside a property": {
        "type": "object",
        "properties": {"kind": {"enum": ["fox", "bear"]}},
        "required": ["kind"],
        "additionalProperties": True,
    },
    "optional keys": {"type": "object", "properties": {"a": {"type": "object"}, "b": {}}},
    "an object or nothing": {"type": ["object", "null"], "properties": {"a": {"type": "array"}}},
}
# A string of JSON.
STRING = re.compile(r'"(?:\\.|[^"\\])*"?')


@pytest.mark.parametrize("name", FREE_JSON)
def test_free_json_has_no_free_whitespace(engine: Engine, name: str) -> None:
    """A small model would write it until its last token."""
    sampling = {"do_sample": True, "temperature": 3.0, "frequency_penalty": 0.0}
    bodies = [bound("json", FREE_JSON[name], seed=seed, **sampling) for seed in range(8)]
    found = all_generated(engine, bodies)
    assert any(len(text) > 2 for text, _ in found)
    for text, reason in found:
        assert not re.search(r"\s\s|[\n\t]|^\s|[\[{] ", STRING.sub("", text)), text
        if reason == "eos_token":
            Draft202012Validator(FREE_JSON[name]).validate(json.loads(text))


def test_objects_without_additional_properties_are_closed(engine: Engine, folder: Path) -> None:
    """As with OpenAI, and whatever runs the model."""
    schema = {"type": "object", "properties": {"kind": {"enum": ["fox"]}}, "required": ["kind"]}
    hot = {"do_sample": True, "temperature": 5.0, "seed": 1, "max_new_tokens": 60}
    checkpoint = Engine.load(folder, ModelConfig.parse({"handler": {"mode": MODE}}))
    for each in (engine, checkpoint):
        text, reason = generated(each, bound("json", schema, **hot))
        assert (json.loads(text), reason) == ({"kind": "fox"}, "eos_token")


@pytest.mark.parametrize(
    "lacking",
    [
        {"type": "string", "pattern": "^(?=a)a"},
        pytest.param({"type": "string", "pattern": '^a"b$'}, marks=pytest.mark.nightly),
        pytest.param({"type": "number", "minimum": 0.5}, marks=pytest.mark.nightly),
        {"$ref": "https://example.org/schema"},
    ],
)
def test_without_strict_and_weights_the_rest_of_a_schema_is_followed(
    engine: Engine, lacking: dict[str, Any]
) -> None:
    schema = {"properties": {"kind": {"enum": ["fox"]}, "odd": lacking}, "required": ["kind"]}
    grammar = {"type": "json", "value": {"type": "object", **schema}, "strict": False}
    text, _ = generated(engine, Request(PROMPT, {**BOUND, "grammar": grammar}))
    assert text.startswith('{"kind": "fox"')


def test_json_has_one_space_between_its_parts(engine: Engine) -> None:
    pair = {"type": "array", "items": PERSON, "minItems": 1, "maxItems": 2}
    schema = {
        "type": "object",
        "properties": {"pair": pair, "more": {"anyOf": [PERSON, {"type": "null"}]}},
        "required": ["pair"],
    }
    text, _ = generated(engine, bound("json", schema, frequency_penalty=0.0))
    assert text == json.dumps(json.loads(text))
    assert not list(Draft202012Validator(schema).iter_errors(json.loads(text)))


@pytest.mark.parametrize("least", [0, pytest.param(1, marks=pytest.mark.nightly), 3])
def test_an_array_without_end_has_no_free_whitespace(engine: Engine, least: int) -> None:
    schema = {"type": "array", "items": {"maximum": 9, "type": "integer"}, "minItems": least}
    sampling = {"do_sample": True, "temperature": 2.0, "frequency_penalty": 0.0}
    found = all_generated(
        engine, [bound("json", schema, seed=seed, **sampling) for seed in range(4)]
    )
    ended = [text for text, reason in found if reason == "eos_token"]
    assert ended
    for text in ended:
        assert text == json.dumps(json.loads(text))
        Draft202012Validator(schema).validate(json.loads(text))


def test_arrays_without_end_may_be_parts_of_others(engine: Engine) -> None:
    words = {"type": "array", "items": {"enum": ["fox", "bear"]}}
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": words}, "last": words},
        "required": ["rows", "last"],
    }
    text, reason = generated(engine, bound("json", schema, do_sample=True, seed=1))
    assert reason == "eos_token"
    assert text == json.dumps(json.loads(text))
    Draft202012Validator(schema).validate(json.loads(text))


def test_a_trial_without_time_is_no_mistake_of_the_grammar(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = bound("regex", "[xy]{3}")
    with monkeypatch.context() as patch:
        patch.setattr("hf_serve.handlers.generation.backends.openvino_genai.TRIAL_TIMEOUT", 0.01)
        [outcome] = engine.predict([request])
    assert isinstance(outcome, Overloaded)
    assert re.fullmatch("[xy]{3}", generated(engine, request)[0])


def test_a_grammar_changes_no_text_beside_it(engine: Engine) -> None:
    free = [Request(f"Once upon a time {number}", FREE) for number in range(6)]
    alone = [engine.predict([request])[0] for request in free]
    grammars = [bound("json", PERSON), bound("regex", "[ab]{40}")] * 3
    mixed = [request for pair in zip(free, grammars, strict=True) for request in pair]
    assert engine.predict(mixed)[::2] == alone


def test_a_stop_string_and_the_maximum_end_a_text_within_its_grammar(engine: Engine) -> None:
    assert generated(engine, bound("regex", "a{9}bc", stop=["b"])) == ("a" * 9, "stop_sequence")
    assert generated(engine, bound("regex", "[ab]{50}", max_new_tokens=4))[1] == "length"


@pytest.mark.parametrize(
    "mark", ["<tool_call>", "[TOOL_CALLS]", '"parameters": '], ids=["hermes", "mistral", "llama"]
)
@pytest.mark.parametrize(
    "choice",
    ["required", pytest.param(LOOK, marks=pytest.mark.nightly)],
    ids=["required", "named"],
)
def test_a_call_is_made_as_the_template_writes_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, mark: str, choice: Any
) -> None:
    template = f"{{% if tools %}}{{# {mark} #}}{{% endif %}}{TEMPLATE}"
    monkeypatch.setattr(engine.task.checkpoint.tokenizer, "chat_template", template)
    parameters = {"tools": TOOLS, "tool_choice": choice, **BOUND, "parallel_tool_calls": False}
    [outcome] = engine.predict([Request(CHAT, parameters)])
    assert isinstance(outcome, list), outcome
    assert outcome[0]["details"]["finish_reason"] == "eos_token"
    [call] = outcome[0]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    name = call["function"]["name"]
    assert name == "look" if choice == LOOK else name in ("look", "stop")
    Draft202012Validator(PERSON if name == "look" else {"maxProperties": 0}).validate(arguments)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "mark", ["<tool_call><function=", "<|tool_call>", "[func_name1("], ids=["qwen", "gemma", "list"]
)
def test_the_arguments_of_a_call_keep_to_any_keyword(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    template = f"{{% if tools %}}{{# {mark} #}}{{% endif %}}{TEMPLATE}"
    monkeypatch.setattr(engine.task.checkpoint.tokenizer, "chat_template", template)
    # Without `strict`, patterns that xgrammar reads otherwise in JSON are left out.
    values = [schema for schema, _, _ in ARGUMENT_VALUES if schema.get("pattern") != "b.d"]
    properties = {f"v{at}": schema for at, schema in enumerate(values)}
    units = {"properties": properties, "required": [*properties], "$defs": {"unit": UNIT}}
    schemas = [*(schema for schema, _, _ in SHAPES), units]
    settings = {"tool_choice": "required", **BOUND, "parallel_tool_calls": False}
    functions = [{"name": "f", "parameters": schema} for schema in schemas]
    tools = [[{"type": "function", "function": each}] for each in functions]
    outcomes: Any = engine.predict([Request(CHAT, {"tools": each, **settings}) for each in tools])
    for schema, outcome in zip(schemas, outcomes, strict=True):
        assert isinstance(outcome, list), outcome
        for call in outcome[0].get("tool_calls", ()):
            arguments = json.loads(call["function"]["arguments"])
            Draft202012Validator({"type": "object", **schema}).validate(arguments)


@pytest.mark.parametrize("mark", ["<tool_call>", "[TOOL_CALLS]", '"parameters": '])
def test_with_tools_a_text_may_be_free(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    template = f"{{% if tools %}}{{# {mark} #}}{{% endif %}}{TEMPLATE}"
    monkeypatch.setattr(engine.task.checkpoint.tokenizer, "chat_template", template)
    [outcome] = engine.predict([Request(CHAT, {"tools": TOOLS, **FREE})])
    assert isinstance(outcome, list), outcome
    assert len(outcome[0]["generated_text"]) > 20
    assert "tool_calls" not in outcome[0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json", {"type": "nothing"}),
        ("regex", "[a"),
    ],
)
def test_a_grammar_with_a_mistake_is_refused_beside_running_texts(
    engine: Engine, kind: str, value: Any
) -> None:
    free = Request(PROMPT, FREE)
    [alone] = engine.predict([free])
    found, [outcome] = engine.predict([free]), engine.predict([bound(kind, value)])
    assert found == [alone]
    assert isinstance(outcome, BadRequest), outcome
    assert not engine.device_failed


@pytest.mark.parametrize("kind", ["regex", pytest.param("json", marks=pytest.mark.nightly)])
def test_a_grammar_that_takes_the_engine_too_long_is_refused_beside_running_texts(
    engine: Engine, kind: str
) -> None:
    """With the weights of the checkpoint, llguidance compiles it."""
    nested = "(([a-z ]{1,100}){1,100}){1,100}"
    free = Request(PROMPT, FREE)
    [alone] = engine.predict([free])
    value: Any = nested if kind == "regex" else {"type": "string", "pattern": nested}
    assert "too much time or memory" in refusal(engine, bound(kind, value))
    assert engine.predict([free]) == [alone]


def test_what_the_engine_cannot_do_is_refused_by_name_before_a_grammar_is_compiled(
    engine: Engine,
) -> None:
    broken = bound("regex", "[a", min_new_tokens=3)
    assert refusal(engine, broken) == Sentence("min_new_tokens")
    assert "multipleOf" in refusal(engine, bound("json", {"type": "nope", "multipleOf": 2}))
    assert "Unicode" in refusal(engine, bound("regex", r"\p{L}+"))
    assert "'$'" in refusal(engine, bound("regex", "a$|b"))


def test_what_the_engine_cannot_do_is_generated_by_the_checkpoint(folder: Path) -> None:
    """With llguidance, which also says what is wrong with a grammar."""
    engine = Engine.load(folder, config(dtype="float32"))
    even = {"type": "integer", "multipleOf": 2, "minimum": 4, "maximum": 9}
    assert json.loads(generated(engine, bound("json", even))[0]) in (4, 6, 8)
    nested = generated(engine, bound("regex", "[a-z&&[^b]]{7}", min_new_tokens=2))[0]
    assert re.fullmatch("[ac-z]{7}", nested)
    [outcome] = engine.predict([bound("regex", "[a", min_new_tokens=3)])
    assert isinstance(outcome, BadRequest)


@pytest.mark.parametrize(
    ("schema", "ignored"),
    [
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, "allOf with several schemas"),
        ({"type": "string", "pattern": "a", "maxLength": 3}, "maxLength with pattern"),
        ({"type": "string", "pattern": "[a-z&&[^b]]"}, "sets of characters"),
        ({"properties": {"a": {"$ref": "#/$defs/b", "minimum": 1}}}, "minimum with $ref"),
        ({"properties": {"a": {"minLength": 2}}}, "minLength"),
        ({"type": "object", "properties": {}, "required": ["a"]}, "required a"),
        ({"items": {"anyOf": [{"type": "array", "uniqueItems": True}]}}, "uniqueItems"),
    ],
)
def test_a_keyword_that_would_be_ignored_is_refused(schema: Any, ignored: str) -> None:
    with refused(Unprocessable, ignored):
        check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        PERSON,
        True,
        {"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a", "title": "A"},
        {"type": ["string", "null"], "maxLength": 3, "description": "b"},
        {"type": "array", "prefixItems": [{"type": "number", "minimum": 0}], "items": False},
        {"allOf": 5, "type": [{}]},
        {"type": "object", "properties": 3, "required": 3},
    ],
)
def test_other_schemas_are_left_to_the_compiler(schema: Any) -> None:
    check_schema(schema)


def test_a_set_within_a_set_is_refused() -> None:
    check_pattern(r"[a-z]x[\[b]\[[^c]")
    for pattern in ("[a-z&&[^b]]", "[[:alpha:]]", "a[b-d--c]", r"\\[[a]]"):
        with pytest.raises(Unprocessable):
            check_pattern(pattern)


@pytest.mark.nightly
def test_grammars_that_are_forgotten_change_no_text(engine: Engine) -> None:
    """A text that runs while others are forgotten keeps its grammar."""
    # The program imports openvino, which not every environment has.
    from hf_serve.handlers.generation.backends.openvino_genai_process import MAX_GRAMMARS  # noqa: PLC0415

    long = bound("regex", "[ab]{600}c", max_new_tokens=700)
    alone = engine.predict([long])
    many = [bound("regex", f"{number}x[ab]") for number in range(MAX_GRAMMARS + 2)]
    outcomes: Any = engine.predict([long, *many])
    assert outcomes[:1] == alone
    texts = [outcome[0]["generated_text"] for outcome in outcomes[1:]]
    assert all(re.fullmatch(f"{number}x[ab]", text) for number, text in enumerate(texts))


def test_what_xgrammar_says_about_a_schema_is_not_logged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = Engine.load(folder, config(dtype="float32", captum_explanation=False))
    monkeypatch.setattr(
        engine.task.checkpoint.tokenizer,
        "chat_template",
        f"{{% if tools %}}<tool_call>{{% endif %}}{TEMPLATE}",
    )
    ignored = {"properties": {"a": {"type": "string", "pattern": "b", "maxLength": 3}}}
    tools = [{"type": "function", "function": {"name": "look", "parameters": ignored}}]
    [outcome] = engine.predict([Request(CHAT, {"tools": tools, "tool_choice": "required", **FREE})])
    assert isinstance(outcome, list), outcome
    assert ".cc:" not in "".join(capfd.readouterr())


@pytest.mark.nightly
def test_the_vocabulary_is_removed_with_the_model(tmp_path: Path) -> None:
    tiny.write(tmp_path, MODE)
    formats.export(tmp_path, config(), tmp_path)
    model: Any = Engine.load(tmp_path, config()).model
    folder = model._trials.folder
    assert (folder / "openvino_detokenizer.xml").exists()
    del model
    gc.collect()
    assert not folder.exists()
