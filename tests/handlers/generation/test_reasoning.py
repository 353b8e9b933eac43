"""The syntaxes of thoughts: found in templates, and limited by grammars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from transformers import AutoTokenizer

from hf_serve.handlers.config.handler_section import ReasoningParser
from hf_serve.handlers.generation import reasoning
from hf_serve.handlers.generation.grammar import GrammarCompiler
from hf_serve.handlers.generation.message import GeneratedMessage, MessageReader, MessageSyntax
from hf_serve.handlers.generation.reasoning import (
    ALIASES,
    HARMONY,
    REASONING_SYNTAXES,
    THINK,
    Thoughts,
    find_reasoning,
    template_text,
)
from tests.tiny_tokenizers import write_gpt2

ANSWER = 'start: "Yes."'
# What the templates of families have of their thoughts.
TEMPLATES = {
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}": "qwen3",
    "{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}": "qwen3",
    "{{ '[THINK]' + block['thinking'] + '[/THINK]' }}": "mistral",
    "Write your thoughts after 'Here is my thought process:' and your response after 'Here is my"
    " response:' for each user query.": "granite",
    "Write your thoughts between <think></think> and write your response between"
    " <response></response>.": "granite3_3",
    "{{- '<|channel>thought\\n' + text + '\\n<channel|>' -}}": "gemma4",
    '{{- "<|start|>assistant<|channel|>analysis<|message|>" + m.thinking + "<|end|>" }}': "gpt_oss",
    "{{ '<seed:think>' + m.reasoning_content + '</seed:think>' }}": "seed_oss",
    "{{ '<mm:think>' + m.reasoning_content + '</mm:think>' }}": "minimax_m3",
    "<think>{{ m.reasoning }}</think><response>{{ tool.result }}</response>": "qwen3",
    "<|START_THINKING|>{{ m.tool_plan }}<|END_THINKING|>": "cohere",
    "<|START_THINKING|>{{ m.text }}<|END_THINKING|><|START_TEXT|>": "cohere_command4",
    "<global_setting>\nthink_mode=True\n</global_setting>{{ m.content }}<think>\n": "ernie45",
    "{{ m.content }}{{ '<|im_start|>assistant\n<think>' }}": "qwen3",
    "{% set text = text.split('</thought>')[-1] %}[|assistant|]<thought>\n": "exaone_deep",
    "{{ '<|inner_prefix|>' + block.text + '<|inner_suffix|>' }}": "apertus",
    "{{ text.split('[BEGIN FINAL RESPONSE]') }}Here are my reasoning steps:\n": "apriel",
    "<|startoftext|>{{ m.content }}<|extra_4|>{{ '<think>\n\n</think>\n' }}": "hunyuan_a13b",
    "<｜hy_place▁holder▁no▁3｜>{{ '<think>\n\n</think>\n' }}": "hunyuan_a13b",
    "<|im_start|>user\n{{ m.content }}<|im_end|>": "none",
    "{{ '<|eot|>' }}{{ m.content }}<|end|>": "none",
}


@pytest.mark.parametrize(("template", "name"), TEMPLATES.items())
def test_the_template_tells_how_thoughts_are_written(template: str, name: str) -> None:
    assert find_reasoning(template) == REASONING_SYNTAXES.get(name)


def test_a_response_schema_tells_it_as_well() -> None:
    regex = r"<\\|channel\\|>analysis<\\|message\\|>(?P<thinking>.*?)<\\|end\\|>"
    assert find_reasoning(template_text("{{ m.content }}", regex)) is HARMONY


def test_the_yaml_names_each_syntax() -> None:
    names = {"none", *REASONING_SYNTAXES, *ALIASES}
    assert set(get_args(ReasoningParser)) == names
    for name in names - {"none"}:
        assert find_reasoning("", name) is not None
    assert find_reasoning("</think>", "none") is None


def test_several_thoughts_of_gpt_oss_are_joined() -> None:
    thought = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"
    text = thought.format("One.") + thought.format("Two.") + "<|channel|>final<|message|>Yes."
    message = MessageSyntax(HARMONY, None).parse(text)
    assert message == GeneratedMessage("One.\nTwo.", "Yes.")


def harmony_text(parts: int) -> str:
    """Return a text of gpt-oss with thoughts, and an answer in some parts."""
    comment = "<|start|>assistant<|channel|>commentary<|message|>I look at it: 1 <|2. <|end|>"
    final = "<|start|>assistant<|channel|>final <|constrain|>json<|message|>"
    thought = "<|channel|>analysis<|message|>Hm.<|end|>"
    return thought + comment * parts + final + "[1, 2]\n" * 40


def test_an_answer_of_gpt_oss_that_grows_is_read_as_the_whole() -> None:
    syntax, text = MessageSyntax(HARMONY, None), harmony_text(parts=3)
    for step in (1, 5):
        reader = MessageReader(syntax)
        for end in range(0, len(text), step):
            assert reader.read(text[:end]) == syntax.parse(text[:end])
    whole = "I look at it: 1 <|2. \n" * 3 + "[1, 2]\n" * 40
    assert reader.read(text) == GeneratedMessage("Hm.", whole)
    assert reader.read(text[:500]) == syntax.parse(text[:500])


class CountingPattern:
    """A pattern that counts the characters that it searches."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.counted = pattern, 0

    def finditer(self, text: str, at: int) -> Iterator[re.Match[str]]:
        self.counted += len(text) - at
        return self.pattern.finditer(text, at)

    def sub(self, new: str, text: str) -> str:
        self.counted += len(text)
        return self.pattern.sub(new, text)


def test_headers_of_gpt_oss_are_searched_in_new_text(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = []
    for name in ("NEXT_HEADER", "UNFINISHED_HEADER"):
        patterns.append(CountingPattern(getattr(reasoning, name)))
        monkeypatch.setattr(reasoning, name, patterns[-1])
    reader, text = MessageReader(MessageSyntax(HARMONY, None)), harmony_text(parts=100)
    steps = len([reader.read(text[:end]) for end in range(0, len(text), 4)])
    for pattern in patterns:
        assert 0 < pattern.counted < 2 * reasoning.MAX_HEADER * steps


@pytest.mark.parametrize(
    "text",
    [
        "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>",
        "<think>Hm.</think><answer>Yes.</answer>",
        "<think>\nHm.\n</think>\n\n<answer>\nYes.\n</answer>\n",
        "<think>Hm.</think>Yes.",
    ],
)
@pytest.mark.parametrize(("name", "mark"), [("hunyuan_a13b", "answer"), ("ernie45", "response")])
def test_the_texts_around_an_answer_are_left_out(text: str, name: str, mark: str) -> None:
    syntax = MessageSyntax(REASONING_SYNTAXES[name], None)
    written = text.replace("answer>", f"{mark}>")
    assert syntax.parse(written) == GeneratedMessage("Hm.", "Yes.")


@pytest.fixture(scope="module", params=[False, True], ids=["added token", "special token"])
def tokenizer(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_gpt2(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=request.param)
    return tokenizer


@pytest.mark.parametrize("begun", [False, True])
def test_a_grammar_limits_the_tokens_of_thoughts(tokenizer: Any, begun: bool) -> None:
    compiler = GrammarCompiler(tokenizer, len(tokenizer), frozenset([tokenizer.eos_token_id]))
    opening = "" if begun else "<think>"

    def fits(text: str, budget: int | None) -> bool:
        lark = Thoughts(THINK, begun, budget).lark(compiler.literal, ANSWER)
        matcher = compiler.compile(lark).matcher()
        for token in tokenizer(text)["input_ids"]:
            if not matcher.allowed(len(tokenizer))[token]:
                return False
            matcher.consume(token)
        return matcher.may_end

    length = len(tokenizer("one two")["input_ids"])
    for end in ("</think>Yes.", "</think>\n\nYes."):
        for budget in (None, length):
            assert fits(f"{opening}one two{end}", budget)
        for budget in (0, length - 1):
            assert not fits(f"{opening}one two{end}", budget)
            assert fits(f"{opening}{end}", budget)
    assert fits("Yes.", None) is not begun
