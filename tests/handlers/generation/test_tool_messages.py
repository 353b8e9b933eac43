"""Tools, calls and their results in a prompt, for templates that know tools and others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from handlers.errors import BadRequest
from handlers.generation.chat import check_messages, prompt_of
from handlers.types.structured_output import Tool
from tests.sentences import refused
from tests.tiny_tokenizers import write_gpt2

PLAIN = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
WITH_TOOLS = (
    "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.id }} {{ call.function.arguments | tojson }}"
    "{% endfor %}{{ message.tool_call_id }}\n{% endfor %}"
)
OF_TEXTS = (
    "{% if tools %}{% endif %}{% for message in messages %}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ 'arguments: ' + call.function.arguments }}{% endfor %}{% endfor %}"
)
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": "ü"}'}}
CHAT = [
    {"role": "user", "content": "Go"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "7", "tool_call_id": "call_1"},
    {"role": "tool", "content": [{"type": "text", "text": "8"}], "name": "f"},
]
TOOL = Tool.model_validate({"type": "function", "function": {"name": "f", "description": "Ü"}})


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_gpt2(folder)
    return AutoTokenizer.from_pretrained(folder)


def prompt(tokenizer: Any, template: Any, chat: Any, *tools: Tool) -> str:
    tokenizer.chat_template = template
    return prompt_of(check_messages(chat, 10_000), tokenizer, 10_000, tools)


def test_a_template_with_tools_gets_them_and_arguments_as_objects(tokenizer: Any) -> None:
    assert prompt(tokenizer, WITH_TOOLS, CHAT, TOOL) == (
        'f user: Go\nassistant: call_1 {"a": "ü"}\ntool: 7call_1\ntool: 8\n'
    )


def test_a_template_that_joins_arguments_to_texts_gets_texts(tokenizer: Any) -> None:
    assert prompt(tokenizer, OF_TEXTS, CHAT, TOOL) == 'Goarguments: {"a": "ü"}78'


def test_a_template_without_tools_gets_texts_in_their_place(tokenizer: Any) -> None:
    found = prompt(tokenizer, PLAIN, CHAT, TOOL)
    system, _, chat = found.partition("user: Go\n")
    assert system.startswith("system: ") and '{"name": "f", "description": "Ü"}' in system
    assert '<tool_call>\n{"name": "…", "arguments": {…}}\n</tool_call>' in system
    assert chat == (
        'assistant: <tool_call>\n{"name": "f", "arguments": {"a": "ü"}}\n</tool_call>\n'
        "user: <tool_response>\n7\n</tool_response>\n<tool_response>\n8\n</tool_response>\n"
        "assistant: "
    )


@pytest.mark.parametrize("prose", ["{# tools #}", "I have no tools. ", "{{ messages[0].tools }}"])
def test_a_template_that_only_names_tools_takes_none(tokenizer: Any, prose: str) -> None:
    assert '{"name": "f", "description": "Ü"}' in prompt(tokenizer, prose + PLAIN, CHAT, TOOL)


def test_a_template_that_sets_its_tools_takes_them(tokenizer: Any) -> None:
    template = "{% if not tools is defined %}{% set tools = [] %}{% endif %}" + WITH_TOOLS
    assert prompt(tokenizer, template, CHAT[:1], TOOL) == "f user: Go\n"


def test_tools_follow_the_text_of_a_system_message(tokenizer: Any) -> None:
    chat = [{"role": "system", "content": "Be brief."}, CHAT[0]]
    assert prompt(tokenizer, PLAIN, chat, TOOL).startswith("system: Be brief.\n\nYou can call")
    assert prompt(tokenizer, PLAIN, chat) == "system: Be brief.\nuser: Go\nassistant: "


def test_a_template_of_its_own_for_tools_is_used_with_tools(tokenizer: Any) -> None:
    templates = {"default": PLAIN, "tool_use": WITH_TOOLS}
    assert prompt(tokenizer, templates, CHAT[:1], TOOL) == "f user: Go\n"
    assert prompt(tokenizer, templates, CHAT[:1]) == "user: Go\nassistant: "


def test_calls_in_messages_count_as_text() -> None:
    long = {**CALL, "function": {"name": "f", "arguments": json.dumps({"a": "x" * 90})}}
    with refused(Exception, "messages", 90):
        check_messages([{"role": "assistant", "content": "", "tool_calls": [long]}], 90)


@pytest.mark.parametrize(
    "calls",
    [
        7,
        [7],
        [{}],
        [{"function": 7}],
        [{"function": {"name": "f"}}],
        [{"function": {"name": "f", "arguments": 7}}],
        [{"function": {"name": "f", "arguments": "["}}],
        [{"function": {"name": "f", "arguments": "[" * 100_000}}],
        [{"function": {"name": "f", "arguments": "[1]"}}],
        [{"function": {"name": 7, "arguments": {}}}],
        [{"id": 7, "function": {"name": "f", "arguments": {}}}],
        [CALL] * 129,
    ],
)
def test_a_call_that_cannot_be_understood_is_refused(calls: Any) -> None:
    message = {"role": "assistant", "content": "a", "tool_calls": calls}
    with refused(BadRequest, "messages[0].tool_calls"):
        check_messages([message], 999)
