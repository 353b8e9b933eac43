from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import pytest
from transformers import AutoTokenizer

from hf_serve.handlers.config.handler_section import ToolCallParser
from hf_serve.handlers.errors import Unprocessable
from hf_serve.handlers.generation.grammar import GrammarCompiler
from hf_serve.handlers.generation.message import MessageReader, MessageSyntax
from hf_serve.handlers.generation.reasoning import THINK
from hf_serve.handlers.generation.text_grammar import ToolCallGrammar
from hf_serve.handlers.generation.tool_syntaxes import (
    HERMES,
    LLAMA,
    MISTRAL,
    TEMPLATE_MARKS,
    TOOL_SYNTAXES,
    find_tool_syntax,
)
from hf_serve.handlers.generation.tool_syntaxes.argument_values import value_forms
from hf_serve.handlers.generation.tool_syntaxes.arguments import arguments_schema, shapes_of
from hf_serve.handlers.generation.tool_syntaxes.base import Brackets, ToolCall, ToolSyntax
from hf_serve.handlers.generation.tool_syntaxes.pair_calls import PairCalls
from hf_serve.handlers.generation.tool_syntaxes.python_calls import PythonCalls
from hf_serve.handlers.types.structured_output import Tool
from tests.sentences import refused
from tests.tiny_tokenizers import write_gpt2

WIDTH = 448
# The texts that are special tokens in the vocabularies of families.
MARKERS = [
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    *("<|channel|>", "<|message|>", "<|constrain|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
    *("<|tool_call_start|>", "<|tool_call_end|>", "<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"),
]
CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"city": {"enum": ["Paris", "Zürich"]}},
}
CALLS = [ToolCall("weather", '{"city": "Paris"}'), ToolCall("stop", "{}")]
every_syntax = pytest.mark.parametrize("syntax", TOOL_SYNTAXES.values(), ids=TOOL_SYNTAXES)


def tool(name: str, parameters: dict[str, Any] | None = None) -> Tool:
    function = {"name": name, "parameters": parameters}
    return Tool.model_validate({"type": "function", "function": function})


TOOLS = [tool("weather", CITY), tool("stop")]
SCHEMAS = {each.function.name: arguments_schema(each) for each in TOOLS}


@pytest.fixture(scope="module", params=[False, True], ids=["markers of text", "special tokens"])
def tokenizer(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_gpt2(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    if request.param:
        tokenizer.add_special_tokens({"additional_special_tokens": MARKERS})
    return tokenizer


@cache
def compiler_of(tokenizer: Any) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, WIDTH, frozenset([int(tokenizer.eos_token_id)]))


def matches(tokenizer: Any, use: ToolCallGrammar, text: str, answer: str | None = None) -> bool:
    """Return whether a text is complete by the grammar of its calls."""
    compiler = compiler_of(tokenizer)
    matcher = compiler.compile(use.lark(compiler.literal, answer)).matcher()
    for token in tokenizer(text)["input_ids"]:
        if not matcher.allowed(WIDTH)[token]:
            return False
        matcher.consume(token)
    return matcher.may_end


@every_syntax
def test_calls_that_are_written_are_read(syntax: ToolSyntax) -> None:
    calls = CALLS if syntax.separator is not None else CALLS[:1]
    written = syntax.write(calls)
    assert list(syntax.calls(written, SCHEMAS)) == calls
    if syntax.opening:
        assert list(syntax.calls(f"I look.\n{written}", SCHEMAS)) == calls
        assert syntax.content(f"I look.\n{written}") == "I look.\n"


@every_syntax
def test_the_last_call_of_a_text_that_is_cut_is_left_out(syntax: ToolSyntax) -> None:
    calls = CALLS if syntax.separator is not None else CALLS[:1]
    written = syntax.write(calls)
    last = len(syntax.write(calls[:-1]).removesuffix(syntax.end)) if calls[:-1] else 0
    last += len(syntax.separator or "")
    ends = written.rindex(syntax.end) if syntax.end else len(written)
    for end in range(last, ends - 1):
        assert list(syntax.calls(written[:end], SCHEMAS)) == calls[:-1]


def growing_texts(syntax: ToolSyntax, rng: Random) -> Iterator[str]:
    """Yield texts with thoughts and calls, some of which have a mistake."""
    values = ['x}"]', "</parameter> \\ '", {"c": "]"}, "f(): return {'a': (1, \"b\")}", "é\n", None]
    for thoughts in ("", "Hm.</think>\n\n", f"<think>{'I look. ' * 9}{syntax.opening}</think>"):
        for answer in ("", "Well. " * rng.randrange(9)):
            some = rng.sample(values, 4)
            calls = [ToolCall("find", json.dumps({"a": each, "b": [each]})) for each in some]
            text = thoughts + answer + syntax.write(calls[: 4 if syntax.separator else 1])
            yield text
            place = rng.randrange(len(text))
            yield text[:place] + rng.choice(["", "}", '"', "'", syntax.end]) + text[place + 1 :]


@every_syntax
def test_a_text_that_grows_is_read_as_the_whole(syntax: ToolSyntax) -> None:
    rng = Random(0)
    for required, has_grammar, begun in (
        (False, False, False),
        (True, False, True),
        (False, True, True),
    ):
        whole = MessageSyntax(
            THINK, replace(syntax, required=required), TOOLS, begun=begun, has_grammar=has_grammar
        )
        for text in growing_texts(syntax, rng):
            reader, end = MessageReader(whole), 0
            while end < len(text):
                end += rng.randrange(1, 9)
                assert reader.read(text[:end]) == whole.parse(text[:end])
            assert reader.read(text[:9]) == whole.parse(text[:9])


@every_syntax
def test_a_stream_reads_each_character_a_few_times(
    syntax: ToolSyntax, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0

    def count(kind: Any, name: str, characters: Callable[..., int]) -> None:
        original = getattr(kind, name)

        def counting(self: Any, *arguments: Any) -> Any:
            nonlocal counted
            place = getattr(self, "_place", 0)
            found = original(self, *arguments)
            counted += characters(found, arguments[0], place, *arguments[1:])
            return found

        monkeypatch.setattr(kind, name, counting)

    count(type(syntax), "_read", lambda found, text, _, at, __: len(text) - at)
    count(Brackets, "_next", lambda found, text, at: (found.end() if found else len(text)) - at)
    arguments = json.dumps({"text": "{'a': [1, 2]}\n" * 40, "list": [{"a": "b"}] * 40})
    calls = [ToolCall("find", arguments)] * (5 if syntax.separator is not None else 1)
    text = f"{'I think. ' * 40}</think>{'I look. ' * 40 if syntax.opening else ''}"
    text += syntax.write(calls)
    reader = MessageReader(MessageSyntax(THINK, syntax, begun=True))
    parts = [reader.read(text[:end]) for end in range(0, len(text), 4)]
    assert len(parts[-1].calls) >= len(calls) - 1
    assert counted < 8 * len(text)


@every_syntax
def test_a_required_call_is_all_of_the_text(tokenizer: Any, syntax: ToolSyntax) -> None:
    use = ToolCallGrammar(TOOLS, syntax, required=True, parallel=True)
    for call in CALLS:
        assert matches(tokenizer, use, syntax.write([call]))
    assert matches(tokenizer, use, syntax.write(CALLS)) is (syntax.separator is not None)
    for text in ("", "I look.", f"I look. {syntax.write(CALLS[:1])}"):
        assert not matches(tokenizer, use, text)


@every_syntax
def test_without_parallel_calls_there_is_one(tokenizer: Any, syntax: ToolSyntax) -> None:
    use = ToolCallGrammar(TOOLS, syntax, required=True, parallel=False)
    assert matches(tokenizer, use, syntax.write(CALLS[:1]))
    assert not matches(tokenizer, use, syntax.write(CALLS))


@every_syntax
def test_a_free_text_may_have_calls_and_only_valid_ones(tokenizer: Any, syntax: ToolSyntax) -> None:
    use = ToolCallGrammar(TOOLS, syntax, required=False, parallel=True)
    wrong = [
        ToolCall("weather", '{"city": "Rome"}'),
        ToolCall("weather", "{}"),
        ToolCall("unknown", "{}"),
        ToolCall("stop", '{"now": 1}'),
    ]
    for text in ("", "I look.", 'A {"name": "x"} and [1]', syntax.write(CALLS[:1])):
        assert matches(tokenizer, use, text), text
    for call in wrong:
        assert not matches(tokenizer, use, syntax.write([call])), call
    if syntax.opening:
        calls = CALLS if syntax.separator is not None else CALLS[:1]
        assert matches(tokenizer, use, f"I look.\n{syntax.write(calls)}")


@pytest.mark.parametrize("syntax", [HERMES, MISTRAL])
def test_a_text_with_a_grammar_has_it_or_calls(tokenizer: Any, syntax: ToolSyntax) -> None:
    use = ToolCallGrammar(TOOLS, syntax, required=False, parallel=True)
    answer = '%json {"type": "object", "properties": {"a": {"type": "integer"}}}'
    assert matches(tokenizer, use, '{"a": 1}', answer)
    assert matches(tokenizer, use, syntax.write(CALLS[:1]), answer)
    assert not matches(tokenizer, use, "I look.", answer)


def test_a_call_of_plain_json_excludes_a_grammar() -> None:
    use = ToolCallGrammar(TOOLS, LLAMA, required=False, parallel=True)
    with refused(Unprocessable):
        use.lark(json.dumps, "/a/")


@every_syntax
def test_random_tokens_become_valid_calls(tokenizer: Any, syntax: ToolSyntax) -> None:
    end = int(tokenizer.eos_token_id)
    compiler = GrammarCompiler(tokenizer, WIDTH, frozenset([end]))
    use = ToolCallGrammar(TOOLS, syntax, required=True, parallel=False)
    grammar = compiler.compile(use.lark(compiler.literal, None))
    for seed in range(9):
        matcher, random, ids = grammar.matcher(), np.random.default_rng(seed), list[int]()
        while not matcher.ended:
            ids.append(int(random.choice(np.flatnonzero(matcher.allowed(WIDTH)))))
            matcher.consume(ids[-1])
        (call,) = syntax.calls(tokenizer.decode(ids[:-1]), SCHEMAS)
        expected: dict[str, list[Any]] = {
            "weather": [{"city": "Paris"}, {"city": "Zürich"}],
            "stop": [{}],
        }
        assert json.loads(call.arguments) in expected[call.name]


@pytest.mark.parametrize(
    ("template", "syntax"),
    [
        ('{{ "<tool_call>" }}{{ call | tojson }}', HERMES),
        ("{{ '[TOOL_CALLS]' }}{{ calls | tojson }}", MISTRAL),
        ("{{ '{\"name\": \"' + name + '\", ' }}{{ '\"parameters\": ' }}{{ arguments }}", LLAMA),
        ("{{ tools }}", HERMES),
    ],
)
def test_the_template_tells_the_syntax(template: str, syntax: ToolSyntax) -> None:
    assert find_tool_syntax(template) is syntax


# What the templates of families have of their calls.
TEMPLATES = {
    '{{- \'<tool_call>\\n{"name": "\' + tool_call.name + \'", "arguments": \' }}': "hermes",
    "{{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}": "qwen3_coder",
    "{{ '<tool_call>' + tc.name }}<arg_key>{{ k }}</arg_key>": "glm45",
    "{{ '<tool_call>' + tc.name }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}": "glm47",
    "{{ '<minimax:tool_call>' }}<invoke name=": "minimax_m2",
    "{{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}": "mistral_args",
    "{{- '[TOOL_CALLS]' + name + '[CALL_ID]' + id + '[ARGS]' + arguments }}": "mistral_call_id",
    "{{- '[TOOL_CALLS] [' }}": "mistral",
    "You SHOULD NOT include any other text. [func_name1(params_name1=value, ...), func_name2()]": (
        "pythonic"
    ),
    "{{- '{\"name\": \"' + name + '\", ' }}{{- '\"parameters\": ' }}": "llama3_json",
    "{{- '<|tool_call>call:' + function['name'] + '{' -}}": "gemma4",
    "{{- '<start_function_call>call:' -}}": "functiongemma",
    "{{ '<|tool_call_start|>[' + call + ']<|tool_call_end|>' }}": "lfm2",
    'List of tools: [{"name": "f"}]': "lfm2",
    "{{ '<function_calls>' + m.function_calls + '</function_calls>' }}": "olmo3",
    "{{ '<|tools_prefix|>[' }}{{ calls }}{{ ']<|tools_suffix|>' }}": "apertus",
    "Write <seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>": "seed_oss",
    'Write <tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>': "hunyuan_a13b",
    "{{ '<tool_calls>\\n' }}{{ call }}{{ '</tool_calls>' }}": "minimax",
    "<|tool_calls_section_begin|><|tool_call_begin|>{{ id }}": "kimi_k2",
    "{{- '<TOOLCALL>[' }}": "nemotron",
    'Write functools[{"name": "f", "arguments": {}}]': "functools",
    """{{ '"name": "f", "parameters": ' + schema }}<|START_ACTION|>""": "cohere",
    "Respond with <|tool_call|> followed by a list of tools": "granite",
    "{{ '<|' + m.role + '|>' + m.content + '<|tool|>' + m.tools + '<|/tool|>' }}": "phi4_mini_json",
    "{{'<｜tool▁call▁begin｜>' + type + '<｜tool▁sep｜>' + name + '```json'}}": "deepseek_v3",
    "{{'<｜tool▁call▁begin｜>'+ name + '<｜tool▁sep｜>' + arguments }}": "deepseek_v31",
    '{{- "<|start|>assistant to=functions." + name + "<|channel|>commentary json<|message|>" }}': (
        "openai"
    ),
    "{{ m.content }}": "hermes",
}


@pytest.mark.parametrize(("template", "name"), TEMPLATES.items())
def test_the_templates_of_families_tell_theirs(template: str, name: str) -> None:
    assert find_tool_syntax(template) is TOOL_SYNTAXES[name]


def test_the_yaml_names_each_syntax() -> None:
    assert set(get_args(ToolCallParser)) == {*TOOL_SYNTAXES} == {*TEMPLATE_MARKS}
    assert find_tool_syntax("<tool_call>", "pythonic") is TOOL_SYNTAXES["pythonic"]


MANY = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "exact": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["text"],
    "additionalProperties": False,
}
FOUND = tool("find", MANY)


@every_syntax
@pytest.mark.parametrize(
    "arguments",
    [
        {"text": 'A fox,\nand "one" (more)', "count": 3, "exact": True, "tags": ["a", "b"]},
        pytest.param({"text": "Zürich 北京", "place": "x"}, marks=pytest.mark.nightly),
        pytest.param({"text": "3"}, marks=pytest.mark.nightly),
    ],
)
def test_arguments_of_each_type_are_written_and_read(
    tokenizer: Any, syntax: ToolSyntax, arguments: dict[str, Any]
) -> None:
    call = ToolCall("find", json.dumps(arguments, ensure_ascii=False))
    use = ToolCallGrammar([FOUND], syntax, required=True, parallel=True)
    written = syntax.write([call])
    assert matches(tokenizer, use, written), written
    (found,) = syntax.calls(written, {"find": arguments_schema(FOUND)})
    assert json.loads(found.arguments) == arguments


# Names that tags, Python and JSON pointers have no place for.
ODD_NAMES = {
    "$top": 1,
    "from": "a,) b",
    "a b": "c",
    "città": True,
    "filter[name]": '"q"',
    "user-id": "x",
}


@every_syntax
def test_a_property_may_have_any_name(tokenizer: Any, syntax: ToolSyntax) -> None:
    kinds = {str: "string", int: "integer", bool: "boolean"}
    properties = {name: {"type": kinds[type(value)]} for name, value in ODD_NAMES.items()}
    schema = {"type": "object", "properties": properties, "required": [*ODD_NAMES]}
    check_written_and_read(tokenizer, syntax, schema, ODD_NAMES)


TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name", "children"],
}
# The references of zod-to-json-schema.
SHARED = {
    "type": "object",
    "properties": {
        "start": {
            "type": "object",
            "properties": {"at": {"type": "string"}},
            "required": ["at"],
        },
        "end": {"$ref": "#/properties/start"},
        "stops": {"type": "array", "items": {"$ref": "#/properties/start/properties/at"}},
        "by": {"$ref": "#/properties/start/properties/at"},
    },
    "required": ["start", "end", "stops", "by"],
}


@every_syntax
@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (TREE, {"name": "a", "children": [{"name": "b", "children": []}]}),
        (SHARED, {"start": {"at": "x"}, "end": {"at": "y"}, "stops": ["z"], "by": "boat"}),
    ],
    ids=["the whole schema", "another property"],
)
def test_a_schema_may_refer_to_any_part_of_itself(
    tokenizer: Any, syntax: ToolSyntax, schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    check_written_and_read(tokenizer, syntax, schema, arguments)


# Schemas of arguments in which other keywords than `properties` tell the names, and arguments that
# match and that do not.
TEXT, COUNT = {"type": "string"}, {"type": "integer"}
ONE_OF_TWO = [
    {"properties": {"kind": {"const": "file"}, "path": TEXT}, "required": ["kind", "path"]},
    {"properties": {"kind": {"const": "page"}, "number": COUNT}, "required": ["kind", "number"]},
]
SHAPES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        {"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": TEXT}, "required": ["a"]}}},
        {"a": "x"},
        {},
    ),
    (
        {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"n": COUNT}}]},
        {"a": "x", "n": 1},
        {"n": 1},
    ),
    ({"anyOf": ONE_OF_TWO}, {"kind": "page", "number": 3}, {"kind": "file", "number": 3}),
    (
        {
            "properties": {"a": TEXT, "n": COUNT},
            "oneOf": [{"required": ["a"]}, {"required": ["n"]}],
        },
        {"n": 1},
        {},
    ),
    ({}, {"a": "x y", "n": 1, "list": [True, None]}, {"a b": 1}),
    (
        {"properties": {"a": TEXT}, "required": ["a"], "additionalProperties": COUNT},
        {"a": "x", "n": 1, "m": 2},
        {"a": "x", "n": False},
    ),
]
# The syntaxes whose calls are no JSON.
MARKED = [
    pytest.param(syntax, id=name, marks=() if name in fast else pytest.mark.nightly)
    for fast in [("qwen3_coder", "gemma4", "pythonic")]
    for name, syntax in TOOL_SYNTAXES.items()
    if isinstance(syntax, PairCalls | PythonCalls)
]


@pytest.mark.parametrize("syntax", MARKED)
@pytest.mark.parametrize(("schema", "arguments", "wrong"), SHAPES)
def test_any_keyword_may_tell_the_arguments(
    tokenizer: Any,
    syntax: ToolSyntax,
    schema: dict[str, Any],
    arguments: dict[str, Any],
    wrong: dict[str, Any],
) -> None:
    check_written_and_read(tokenizer, syntax, {"type": "object", **schema}, arguments)
    use = ToolCallGrammar([tool("find", schema)], syntax, required=True, parallel=True)
    assert not matches(tokenizer, use, syntax.write([ToolCall("find", json.dumps(wrong))]))


UNIT = {"enum": ["metre", "mile"]}
ARGUMENT_VALUES: list[tuple[Any, Any, Any]] = [
    ({"anyOf": [{"$ref": "#/$defs/unit"}, {"type": "null"}]}, ["mile", None], ["inch"]),
    ({"allOf": [{"$ref": "#/$defs/unit"}], "description": "The unit."}, ["mile"], ["inch"]),
    ({"enum": ["all", 3, None]}, ["all", 3, None], [4, "some"]),
    ({"type": ["string", "null"]}, ["x", None], []),
    ({"anyOf": [TEXT, {"type": "array", "items": TEXT}]}, ["[a", ["a", "b"]], []),
    ({"description": "Anything."}, ["two words", 4, {"a": [1]}], []),
    ({"type": "string", "pattern": "^[a-z/]{2}$"}, ["a/"], ["abc", "a"]),
    ({"type": "string", "pattern": "b.d"}, ["abcde\nf"], ["bd"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab"], ["a", "abcd"]),
    ({"type": ["string", "integer"], "maxLength": 2}, ["ab"], ["abc"]),
]


@pytest.mark.parametrize("syntax", MARKED)
@pytest.mark.parametrize(("schema", "values", "wrong"), ARGUMENT_VALUES)
def test_a_value_is_a_text_as_it_is_or_json(
    tokenizer: Any, syntax: ToolSyntax, schema: Any, values: Any, wrong: Any
) -> None:
    whole = {"properties": {"a": schema}, "required": ["a"], "$defs": {"unit": UNIT}}
    use = ToolCallGrammar([tool("find", whole)], syntax, required=True, parallel=True)
    for value in values:
        check_written_and_read(tokenizer, syntax, whole, {"a": value})
    for value in wrong:
        assert not matches(
            tokenizer, use, syntax.write([ToolCall("find", json.dumps({"a": value}))])
        )


def test_a_strict_pattern_that_cannot_be_enforced_is_refused(tokenizer: Any) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a|b$"}}}
    for strict in (True, False):
        function = {"name": "find", "parameters": parameters, "strict": strict}
        find = Tool.model_validate({"type": "function", "function": function})
        use = ToolCallGrammar([find], TOOL_SYNTAXES["qwen3_coder"], required=True, parallel=True)
        for write in (lambda: use.lark(json.dumps, None), use.format):  # noqa: B023
            if strict:
                with refused(Unprocessable, "^a|b$"):
                    write()
            else:
                assert write()


def test_schemas_that_refer_to_one_another_again_and_again_are_read_at_once() -> None:
    for keyword in ("allOf", "anyOf"):
        definitions: dict[str, Any] = {
            f"d{at}": {keyword: [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(25)
        }
        definitions["d25"] = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "allOf": [{"$ref": "#"}]}
        schema = {"$ref": "#/$defs/d0", "$defs": definitions}
        for shape in shapes_of(schema):
            assert [*shape.properties] == ["a"]
            assert value_forms(shape.properties["a"]).others


def check_written_and_read(
    tokenizer: Any, syntax: ToolSyntax, schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Check that the grammar of a tool has a call with some arguments, and that it is read."""
    use = ToolCallGrammar([tool("find", schema)], syntax, required=True, parallel=True)
    written = syntax.write([ToolCall("find", json.dumps(arguments, ensure_ascii=False))])
    assert matches(tokenizer, use, written), written
    (found,) = syntax.calls(written, {"find": arguments_schema(use.tools[0])})
    assert json.loads(found.arguments) == arguments


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('f(path="a\\/b")', {"path": "a/b"}),
        ("f(path='a\\'b', n=-1.5)", {"path": "a'b", "n": -1.5}),
        (
            'f(a={"b": [1, None, true]}, c=("x", "y"),)',
            {"a": {"b": [1, None, True]}, "c": ["x", "y"]},
        ),
        ("f()", {}),
    ],
)
def test_literals_of_python_and_of_json_are_read(written: str, arguments: Any) -> None:
    (call,) = TOOL_SYNTAXES["pythonic"].calls(f"[{written}]", {})
    assert json.loads(call.arguments) == arguments


@pytest.mark.parametrize("written", ['f("x")', "f(a=b)", "f(a=g())", "f(a=)", "f(a=1 2)"])
def test_arguments_without_names_or_with_code_are_no_call(written: str) -> None:
    assert not list(TOOL_SYNTAXES["pythonic"].calls(f"[{written}]", {}))


def test_a_custom_tool_takes_a_text() -> None:
    custom = {"type": "custom", "custom": {"name": "run", "description": "Runs a text."}}
    run = Tool.model_validate(custom)
    message = MessageSyntax(None, HERMES, [run]).parse(
        HERMES.write([ToolCall("run", '{"input": "a = \\"1\\""}')])
    )
    (call,) = message.calls
    assert call.as_json == {"type": "custom", "custom": {"name": "run", "input": 'a = "1"'}}


@pytest.mark.parametrize("syntax", [HERMES, TOOL_SYNTAXES["qwen3_coder"]])
@pytest.mark.parametrize("pattern", ["[0-9]+", "^[0-9]+$", "^0|[0-9]{2}$"])
def test_a_custom_tool_keeps_to_its_grammar(
    tokenizer: Any, syntax: ToolSyntax, pattern: str
) -> None:
    form = {"type": "grammar", "syntax": "regex", "definition": pattern}
    run = Tool.model_validate({"type": "custom", "custom": {"name": "run", "format": form}})
    use = ToolCallGrammar([run], syntax, required=True, parallel=True)
    for text, fits in (("42", True), ("4a", False), ("x42", False)):
        call = ToolCall("run", json.dumps({"input": text}))
        assert matches(tokenizer, use, syntax.write([call])) is fits


def test_arguments_that_nest_too_deeply_to_be_read_are_no_call() -> None:
    head = '<tool_call>\n{"name": "f", "arguments": '
    assert not list(HERMES.calls(head + "[" * 100_000, {}))


def test_the_calls_of_cohere_have_numbers() -> None:
    text = """<|START_ACTION|>[
    {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}},
    {"tool_call_id": "12", "tool_name": "g", "parameters": {}}
]<|END_ACTION|>"""
    calls = [ToolCall("f", '{"a": 1}'), ToolCall("g", "{}")]
    assert list(TOOL_SYNTAXES["cohere"].calls(text, {})) == calls


def test_mistrals_ids_have_nine_letters_and_digits() -> None:
    assert MISTRAL.call_id("call_0123456789abcdef") == "789abcdef"
    assert MISTRAL.call_id("x_1") == "0000000x1"
    assert MISTRAL.call_id("", "f", 12) == "000000012"
    assert HERMES.call_id("x_1") == "x_1"
