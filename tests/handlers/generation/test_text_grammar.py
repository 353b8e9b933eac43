"""Grammars of texts without what a compiler lacks, where a schema is not strict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from hf_serve.handlers.errors import BadRequest, RequestTooLarge
from hf_serve.handlers.generation.grammar import GrammarCompiler
from hf_serve.handlers.generation.message import MessageSyntax
from hf_serve.handlers.generation.reasoning import MAX_GAP, THINK, Thoughts
from hf_serve.handlers.generation.text_grammar import TextGrammar, ToolCallGrammar
from hf_serve.handlers.generation.tool_syntaxes import HERMES, TOOL_SYNTAXES
from hf_serve.handlers.generation.tool_syntaxes.base import ToolCall
from hf_serve.handlers.types.structured_output import Grammar, Tool
from tests.sentences import refused
from tests.tiny_tokenizers import write_gpt2

COSTLY = {"type": "string", "allOf": [{"pattern": f".*a.{{{each}}}b"} for each in range(64)]}
LACKING: dict[str, dict[str, Any]] = {
    "a look-ahead": {"type": "string", "pattern": "^(?=.*b)a"},
    "a look-behind": {"type": "string", "pattern": "(?<!b)a"},
    "a reference to a group": {"type": "string", "pattern": r"(a)\1"},
    "the border of a word": {"type": "string", "pattern": r"\ba\b"},
    "a control character": {"type": "string", "pattern": r"\cA"},
    "a pattern of keys": {"type": "object", "patternProperties": {"^(?!b)": {"type": "string"}}},
    "a pattern of names": {"type": "object", "propertyNames": {"pattern": "^(?!b)"}},
    "a pattern in an array": {"type": "array", "items": {"type": "string", "pattern": "(?=a)"}},
    "a pattern in a choice": {"anyOf": [{"type": "string", "pattern": "(?=a)"}]},
    "a huge bound": {"type": "integer", "minimum": 10**300},
    "another document": {"$ref": "https://example.org/schema"},
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_gpt2(folder)
    return AutoTokenizer.from_pretrained(folder)


def compiler(tokenizer: Any, **limits: int) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, len(tokenizer), frozenset([tokenizer.eos_token_id]), **limits)


@pytest.fixture(scope="module")
def grammars(tokenizer: Any) -> GrammarCompiler:
    return compiler(tokenizer)


def tool(schema: Any, *, strict: bool | None = None, name: str = "look") -> Tool:
    parameters = {"type": "object", "properties": {"odd": schema, "kind": {"enum": ["fox"]}}}
    function = {"name": name, "parameters": parameters, "strict": strict}
    return Tool.model_validate({"type": "function", "function": function})


def calling(grammars: GrammarCompiler, *tools: Tool) -> TextGrammar:
    return TextGrammar(
        None, ToolCallGrammar(tools, HERMES, required=False, parallel=True), grammars
    )


def matches(tokenizer: Any, grammar: TextGrammar, text: str) -> bool:
    matcher = grammar.compile().matcher()
    for token in tokenizer(text)["input_ids"]:
        if not matcher.allowed(len(tokenizer))[token]:
            return False
        matcher.consume(token)
    return matcher.may_end


def calls(*arguments: Any) -> Sequence[str]:
    return [HERMES.write([ToolCall("look", json.dumps(each))]) for each in arguments]


@pytest.mark.parametrize("name", LACKING)
def test_without_strict_the_rest_of_a_schema_is_followed(
    tokenizer: Any, grammars: GrammarCompiler, name: str
) -> None:
    grammar = calling(grammars, tool(LACKING[name]))
    right, wrong, unknown = calls({"kind": "fox"}, {"kind": "bear"}, {"new": 1})
    assert matches(tokenizer, grammar, right)
    assert not matches(tokenizer, grammar, wrong) and not matches(tokenizer, grammar, unknown)
    answer = Grammar(type="json", value=LACKING[name], strict=False)
    assert TextGrammar(answer, None, grammars).compile()


@pytest.mark.parametrize("name", LACKING)
def test_with_strict_it_is_refused(grammars: GrammarCompiler, name: str) -> None:
    with pytest.raises(BadRequest):
        calling(grammars, tool(LACKING[name], strict=True)).compile()
    with pytest.raises(BadRequest):
        TextGrammar(Grammar(type="json", value=LACKING[name]), None, grammars).compile()


def test_constraints_that_take_too_long_together_are_left_out(
    tokenizer: Any, grammars: GrammarCompiler
) -> None:
    grammar = calling(grammars, tool(COSTLY))
    right, wrong = calls({"odd": "+", "kind": "fox"}, {"kind": "bear"})
    assert matches(tokenizer, grammar, right) and not matches(tokenizer, grammar, wrong)


def test_a_mistake_is_refused_in_any_case(grammars: GrammarCompiler) -> None:
    mistakes: list[dict[str, Any]] = [
        {"type": "strin"},
        {"$ref": "#/nothing"},
        {"properties": []},
    ]
    for wrong in mistakes:
        with refused(BadRequest):
            calling(grammars, tool({"type": "object", **wrong})).compile()


def test_many_tools_with_large_schemas_are_compiled(tokenizer: Any) -> None:
    """Those of clients that connect to several servers of tools."""
    described = {"type": "string", "description": "What it is. " * 100, "maxLength": 40}
    grammar = calling(
        compiler(tokenizer), *(tool(described, name=f"look_{number}") for number in range(60))
    )
    assert len(grammar.lark) > 64_000
    assert grammar.compile()
    with refused(RequestTooLarge, "max_grammar_characters", 50_000):
        calling(compiler(tokenizer, max_characters=50_000), *grammar.calls.tools).compile()  # type: ignore[union-attr]


def test_the_schema_and_the_regex_of_a_grammar_have_the_same_limit(tokenizer: Any) -> None:
    small = compiler(tokenizer, max_characters=30)
    for kind, value in (("regex", "a{1,2}" * 6), ("json", json.dumps({"enum": ["a" * 30]}))):
        with pytest.raises(RequestTooLarge):
            grammar = Grammar.model_validate({"type": kind, "value": value})
            TextGrammar(grammar, None, small).compile()


def test_thoughts_between_marks_of_text_may_have_marks_of_calls(
    tokenizer: Any, grammars: GrammarCompiler
) -> None:
    thinking = Thoughts(THINK, begun=False)
    grammar = replace(calling(grammars, tool({"type": "string"})), thoughts=thinking)
    thoughts = "<think>A call begins with <tool_call>, an answer does not.</think>\n\n"
    right, wrong = calls({"odd": "a", "kind": "fox"}, {"odd": 1, "kind": "fox"})
    for start in ("", thoughts):
        assert matches(tokenizer, grammar, f"{start}Yes.")
        assert matches(tokenizer, grammar, f"{start}{right}")
        assert not matches(tokenizer, grammar, f"{start}{wrong}")
    assert matches(tokenizer, grammar, "<thin")
    assert not matches(tokenizer, grammar, "<think>A")


@pytest.mark.parametrize("name", ["llama3_json", "pythonic"])
@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_calls_without_an_opening_follow_thoughts(
    tokenizer: Any, grammars: GrammarCompiler, name: str, required: bool, begun: bool
) -> None:
    syntax = replace(TOOL_SYNTAXES[name], required=required)
    tools = [tool({"type": "string"}, strict=True)]
    calls = ToolCallGrammar(tools, syntax, required=required, parallel=True)
    grammar = TextGrammar(None, calls, grammars, Thoughts(THINK, begun=begun))
    message = MessageSyntax(THINK, syntax, tools, begun=begun)
    thoughts = f"{'' if begun else '<think>'}A {syntax.begins} begins a call.</think>"
    call = ToolCall("look", '{"kind": "fox"}')
    for gap in ("", "\n\n", " " * 6):
        called = f"{thoughts}{gap}{syntax.write([call])}"
        assert matches(tokenizer, grammar, called) is (len(gap) <= MAX_GAP)
        assert message.parse(called).calls == (call,)
        assert not matches(tokenizer, grammar, f"{thoughts}{gap}{syntax.begins}a fox")
        answered = f"{thoughts}{gap}A {syntax.begins}fox"
        assert matches(tokenizer, grammar, answered) is not required
        if not required:
            assert message.parse(answered).content == f"A {syntax.begins}fox"
    assert not matches(tokenizer, grammar, thoughts[:-1])
