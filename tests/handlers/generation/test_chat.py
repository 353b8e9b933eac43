from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from hf_serve.handlers.errors import BadRequest, RequestTooLarge
from hf_serve.handlers.generation.chat import TemplateOptions, check_messages, prompt_of
from hf_serve.handlers.generation.parameters import GenerationParameters
from hf_serve.handlers.types.structured_output import Tool
from tests.sentences import Sentence, refused
from tests.serving import Served
from tests.tiny_tokenizers import write_gpt2

TEMPLATE = (
    "{% if messages[0].role == 'critic' %}{{ raise_exception('no critics here') }}{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
WITH_TOOLS = "{% if tools %}{% endif %}" + TEMPLATE
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who sings?"}]
PROMPT = "system: Be brief.\nuser: Who sings?\nassistant: "
FEW = {"max_new_tokens": 6}


@pytest.fixture
def model(served: Callable[..., Served], monkeypatch: Any) -> Iterator[Served]:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    yield model


def test_a_chat_is_answered_as_the_prompt_of_its_template(model: Served) -> None:
    ((answer,), (same,)) = model.ask(CHAT, **FEW), model.ask(PROMPT, **FEW)
    assert answer["generated_text"][:2] == CHAT
    assert answer["generated_text"][2] == {
        "role": "assistant",
        "content": same["generated_text"].removeprefix(PROMPT),
    }


def test_the_new_message_is_returned_as_a_text(model: Served) -> None:
    (answer,) = model.ask(CHAT, return_full_text=False, **FEW)
    (same,) = model.ask(PROMPT, return_full_text=False, **FEW)
    assert answer == same


def test_parts_of_a_message_are_joined(model: Served) -> None:
    parts = [{"type": "text", "text": "Who "}, {"type": "refusal", "refusal": "sings?"}]
    chat = [CHAT[0], {"role": "user", "content": parts}]
    options = {"return_full_text": False, **FEW}
    assert model.ask(chat, **options) == model.ask(CHAT, **options)


def test_an_assistant_message_without_content_is_an_empty_text(model: Served) -> None:
    silent, empty = ([*CHAT, {"role": "assistant", "content": content}] for content in (None, ""))
    assert model.ask(silent, **FEW) == model.ask(empty, **FEW)


def test_chats_and_prompts_share_a_batch(model: Served) -> None:
    chat, prompt = ({"inputs": inputs, "parameters": FEW} for inputs in (CHAT, "Ada"))
    together = model.post(chat, prompt, chat)
    assert together == [model.post(each)[0] for each in (chat, prompt, chat)]


@pytest.mark.parametrize(
    ("messages", "status", "facts"),
    [
        ([{"role": "critic", "content": "x"}], 400, ["messages"]),
        ([{"role": "user"}], 400, ["messages[0].content"]),
        ([{"role": 1, "content": "x"}], 400, ["messages[0].role"]),
        ([{"role": "", "content": "x"}], 400, ["messages[0].role"]),
        ([{"role": "\ud83d", "content": "x"}], 400, ["messages[0].role"]),
        ([{"role": "x" * 200_001, "content": "x"}], 413, ["messages[0].role", "200,001"]),
        ([{"role": "x" * 65, "content": "x"}], 413, ["messages[0].role", "65"]),
        ([{"role": "user", "content": "x"}] * 1001, 413, ["messages", "1,001"]),
        ([{"role": "user", "content": [{"type": "image_url"}]}], 400, ["messages[0].content"]),
        ([{"role": "user", "content": " "}], 400, ["messages"]),
        (
            [{"role": "user", "content": "x", "reasoning": ["x"]}],
            400,
            ["messages[0].reasoning"],
        ),
        ([{"role": "user", "content": "x" * 200_001}], 413, ["messages", "200,001"]),
    ],
)
def test_a_chat_of_another_shape_is_refused(
    model: Served, messages: Any, status: int, facts: list[str]
) -> None:
    found, text = model.refuse(messages)
    assert found == status and text == Sentence(*facts)


def test_a_chat_is_refused_by_a_model_without_a_template(served: Callable[..., Served]) -> None:
    status, text = served("text_generation", family="GPT2").refuse(CHAT)
    assert (status, text) == (422, Sentence("chat template"))


def test_the_prompt_of_a_chat_has_at_most_the_characters_of_a_text(model: Served) -> None:
    tokenizer, messages = model.engine.task.checkpoint.tokenizer, check_messages(CHAT, 100)
    assert prompt_of(messages, tokenizer, len(PROMPT)) == PROMPT
    with refused(RequestTooLarge, 46):
        prompt_of(messages, tokenizer, len(PROMPT) - 1)


# Each leaves messages out: roles that it does not know, or a system message that is not the first.
KNOWN_ROLES = (
    "{% for m in messages %}{% if m.role == 'system' %}[{{ m.content }}]"
    "{% elif m.role == 'user' %}U {{ m.content }}\n"
    "{% elif m.role == 'assistant' %}A {{ m.content|trim }}\n{% endif %}{% endfor %}"
)
FIRST_SYSTEM = (
    "{% if messages[0].role == 'system' %}[{{ messages[0].content }}]{% endif %}"
    "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.content }}\n"
    "{% endif %}{% endfor %}"
)
WITH_DEVELOPER = (
    "{% for m in messages %}{% if m.role == 'developer' %}<{{ m.content }}>"
    "{% elif m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
)
CALLS = (
    "{% if tools %}{% endif %}"
    "{% for m in messages %}{% if m.tool_calls %}CALL{{ m.tool_calls|length }}"
    "{% else %}{{ m.role }} {{ m.content }}{% endif %}{% endfor %}"
)


def prompt_by(model: Served, template: str, messages: Any, **options: Any) -> str:
    tokenizer = model.engine.task.checkpoint.tokenizer
    tokenizer.chat_template = template
    return prompt_of(check_messages(messages, 999), tokenizer, 999, **options)


def turn(role: str, content: str = "Hi.") -> dict[str, str]:
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        (KNOWN_ROLES, "[Be brief.]U Hi.\n"),
        (WITH_DEVELOPER, "<Be brief.>Hi."),
        # The word alone, in a text or a comment, is no role.
        (
            f"Obey the developer.\n{{# developer #}}{KNOWN_ROLES}",
            "Obey the developer.\n[Be brief.]U Hi.\n",
        ),
        ("{% set x = 'the developer' %}" + KNOWN_ROLES, "[Be brief.]U Hi.\n"),
    ],
)
def test_a_developer_is_the_system_where_the_template_knows_no_developer(
    model: Served, template: str, prompt: str
) -> None:
    chat = [turn("developer", "Be brief."), turn("user")]
    assert prompt_by(model, template, chat) == prompt


THOUGHTS = (
    "{% for m in messages %}{{ m.name or m.role }}: {{ m.content }}"
    "{% if m.KEY %}<think>{{ m.KEY }}</think>{% endif %};{% endfor %}"
)


@pytest.mark.parametrize("tools", ["", "{% if tools %}{% endif %}"], ids=["no tools", "tools"])
@pytest.mark.parametrize("sent", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("read", ["reasoning_content", "reasoning", "thinking", "tool_plan"])
def test_a_template_gets_the_name_and_the_reasoning_of_a_message(
    model: Served, tools: str, sent: str, read: str
) -> None:
    chat = [{**turn("user"), "name": "Tom"}, {**turn("assistant", "Yes."), sent: "Why?"}]
    prompt = prompt_by(model, tools + THOUGHTS.replace("KEY", read), chat)
    assert prompt == "Tom: Hi.;assistant: Yes.<think>Why?</think>;"


def test_the_reasoning_of_a_message_counts_as_text() -> None:
    chat: list[Any] = [{**turn("assistant", "Yes."), "reasoning_content": "Why?"}]
    assert check_messages(chat, len("Yes.Why?"))
    with refused(RequestTooLarge, "messages", len("Yes.Why?")):
        check_messages(chat, len("Yes.Why?") - 1)


@pytest.mark.parametrize(
    ("template", "messages", "role"),
    [
        (KNOWN_ROLES, [turn("user"), turn("critic")], "critic"),
        (KNOWN_ROLES, [turn("critic"), turn("user")], "critic"),
        (FIRST_SYSTEM, [turn("user"), turn("system", "Be brief.")], "system"),
        (FIRST_SYSTEM, [turn("system"), turn("user"), turn("developer")], "system"),
        (WITH_DEVELOPER, [turn("user"), turn("assistant"), turn("user")], "assistant"),
        (CALLS.replace("role", "name"), [turn("user")], None),
    ],
)
def test_a_message_that_the_template_leaves_out_is_an_error(
    model: Served, template: str, messages: Any, role: str | None
) -> None:
    if role is None:
        assert prompt_by(model, template, messages)
        return
    with refused(BadRequest, role):
        prompt_by(model, template, messages)


def test_an_image_may_come_after_the_text_of_a_message_that_is_left_out(model: Served) -> None:
    tokenizer = model.engine.task.checkpoint.tokenizer
    tokenizer.chat_template = (
        "{% for m in messages if m.role == 'user' %}{{ m.content[0].text }}{% endfor %}"
    )
    said, image = {"type": "text", "text": "Hi."}, {"type": "image"}
    chat: list[Any] = [
        {"role": "user", "content": [said, image]},
        {"role": "critic", "content": [said, image]},
    ]
    assert prompt_of(chat[:1], tokenizer, 999) == "Hi."
    with refused(BadRequest, "critic"):
        prompt_of(chat, tokenizer, 999)


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("{% for m in messages %}{{ m.content|trim|upper }}{% endfor %}", "THINK</THINK>HI."),
        ("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}", "Hi."),
        ("{% for m in messages %}{{ m.content|tojson }}{% endfor %}", '"think</think>Hi."'),
    ],
)
def test_a_template_may_write_a_message_in_another_form(
    model: Served, template: str, written: str
) -> None:
    assert prompt_by(model, template, [turn("user", "think</think>Hi.")]) == written


def test_the_text_of_a_message_with_calls_may_be_left_out(model: Served) -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": {}}}
    chat = [turn("user"), {**turn("assistant", "Let me look."), "tool_calls": [call]}]
    assert prompt_by(model, CALLS, chat) == "user Hi.CALL1"


def test_a_chat_goes_on_in_its_last_message(model: Served) -> None:
    chat = [*CHAT, turn("assistant", "Nina")]
    prompt = f"{PROMPT}Nina"
    ((answer,), (same,)) = (
        model.ask(chat, continue_final_message=True, **FEW),
        model.ask(prompt, **FEW),
    )
    last = answer["generated_text"][-1]
    assert len(answer["generated_text"]) == len(chat)
    assert last == turn("assistant", same["generated_text"].removeprefix(PROMPT))


def test_a_template_gets_the_arguments_of_a_request(model: Served) -> None:
    template = (
        "{{ messages[0].content }}{% if loud %}!{% endif %}{{ documents and documents[0].text }}"
    )
    options = GenerationParameters(
        chat_template_kwargs={"loud": True, "unread": 1}, documents=[{"text": "Rain."}]
    ).template_options
    assert prompt_by(model, template, [turn("user")], options=options) == "Hi.!Rain."


@pytest.mark.parametrize(
    "arguments", [{"raise_exception": 1}, {"loud": "x"}, {"count": 10**9}, {"count": -1.5}]
)
def test_an_argument_that_a_template_cannot_read_is_an_error(
    model: Served, arguments: dict[str, Any]
) -> None:
    template = (
        "{{ messages[0].content }}{{ loud.name.first }}{{ raise_exception('no') if arg else '' }}"
        "{% for each in range(count or 0) %}{% endfor %}"
        "{% if raise_exception == 1 %}{{ raise_exception(1) }}{% endif %}"
    )
    options = TemplateOptions(arguments=arguments)
    with pytest.raises(BadRequest):
        prompt_by(model, template, [turn("user")], options=options)


PLAIN = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TOOL_TEMPLATE = (
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
CALL_CHAT = [
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
    assert prompt(tokenizer, TOOL_TEMPLATE, CALL_CHAT, TOOL) == (
        'f user: Go\nassistant: call_1 {"a": "ü"}\ntool: 7call_1\ntool: 8\n'
    )


def test_the_former_names_of_calls_and_results_are_read(tokenizer: Any) -> None:
    called = {"name": "f", "arguments": '{"a": "ü"}'}
    chat = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": None, "function_call": called},
        {"role": "function", "name": "f", "content": "7"},
    ]
    written = 'user: Go\nassistant:  {"a": "ü"}\nRESULT: 7\n'
    for role in ("tool", "function"):
        known = "{% if message.role == 'ROLE' %}RESULT{% else %}{{ message.role }}{% endif %}"
        template = TOOL_TEMPLATE.replace("{{ message.role }}", known.replace("ROLE", role))
        assert prompt(tokenizer, template, chat) == written


@pytest.mark.parametrize("kind", ["text", "input_text", "output_text"])
def test_parts_of_other_interfaces_are_texts_and_thoughts(tokenizer: Any, kind: str) -> None:
    part = {"type": kind, kind.rsplit("_", maxsplit=1)[-1]: "Yes."}
    for thoughts in ("Hm.", [{"type": "text", "text": "Hm."}]):
        parts = [{"type": "thinking", "thinking": thoughts}, part]
        template = "{% for m in messages %}{{ m.thinking }} {{ m.content }}{% endfor %}"
        for empty in ({}, {"reasoning_content": None}):
            chat = [{"role": "assistant", "content": parts, **empty}]
            assert prompt(tokenizer, template, chat) == "Hm. Yes."


def test_a_refusal_is_the_text_of_a_message_without_one(tokenizer: Any) -> None:
    message = {"role": "assistant", "content": None, "refusal": "No."}
    assert prompt(tokenizer, PLAIN, [message]) == "assistant: No.\nassistant: "


# As the template of Kimi K2, which names no function but in the ids.
KIMI = (
    "{% if tools %}{% endif %}{% for m in messages %}{% for call in m.tool_calls or [] %}"
    "<|tool_calls_section_begin|>{{ call.id }}{% endfor %}"
    "{% if m.role == 'tool' %}Return of {{ m.tool_call_id }}{% endif %}{{ m.content }};{% endfor %}"
)


def test_a_template_that_writes_ids_for_names_gets_ids_with_names(tokenizer: Any) -> None:
    second = {"role": "assistant", "content": "", "tool_calls": [{"function": CALL["function"]}]}
    unknown = {"role": "tool", "content": "9", "tool_call_id": "call_2"}
    chat = [*CALL_CHAT[:3], second, *CALL_CHAT[1:3], unknown]
    assert prompt(tokenizer, KIMI, chat, TOOL) == (
        "Go;<|tool_calls_section_begin|>functions.f:0;Return of functions.f:07;"
        "<|tool_calls_section_begin|>functions.f:1;"
        "<|tool_calls_section_begin|>functions.f:2;Return of functions.f:27;Return of call_29;"
    )


# As the template of gpt-oss.
ONE_OF_THEM = (
    "{% if tools %}{% endif %}{% for m in messages %}"
    "{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('not both') }}{% endif %}"
    "{{ m.content or m.thinking }};{% endfor %}"
)


@pytest.mark.parametrize(("content", "written"), [("", "Why?"), ("I look.", "I look.")])
def test_a_template_that_takes_a_text_or_thoughts_gets_one_of_them(
    tokenizer: Any, content: str, written: str
) -> None:
    message = {"role": "assistant", "content": content, "tool_calls": [CALL], "reasoning": "Why?"}
    chat = [{"role": "user", "content": "Go"}, message]
    assert prompt(tokenizer, ONE_OF_THEM, chat, TOOL) == f"Go;{written};"


def test_a_template_that_joins_arguments_to_texts_gets_texts(tokenizer: Any) -> None:
    assert prompt(tokenizer, OF_TEXTS, CALL_CHAT, TOOL) == 'Goarguments: {"a": "ü"}78'


def test_a_template_without_tools_gets_texts_in_their_place(tokenizer: Any) -> None:
    found = prompt(tokenizer, PLAIN, CALL_CHAT, TOOL)
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
    assert '{"name": "f", "description": "Ü"}' in prompt(tokenizer, prose + PLAIN, CALL_CHAT, TOOL)


def test_a_template_that_sets_its_tools_takes_them(tokenizer: Any) -> None:
    template = "{% if not tools is defined %}{% set tools = [] %}{% endif %}" + TOOL_TEMPLATE
    assert prompt(tokenizer, template, CALL_CHAT[:1], TOOL) == "f user: Go\n"


def test_tools_follow_the_text_of_a_system_message(tokenizer: Any) -> None:
    chat = [{"role": "system", "content": "Be brief."}, CALL_CHAT[0]]
    assert prompt(tokenizer, PLAIN, chat, TOOL).startswith("system: Be brief.\n\nYou can call")
    assert prompt(tokenizer, PLAIN, chat) == "system: Be brief.\nuser: Go\nassistant: "


def test_a_template_of_its_own_for_tools_is_used_with_tools(tokenizer: Any) -> None:
    templates = {"default": PLAIN, "tool_use": TOOL_TEMPLATE}
    assert prompt(tokenizer, templates, CALL_CHAT[:1], TOOL) == "f user: Go\n"
    assert prompt(tokenizer, templates, CALL_CHAT[:1]) == "user: Go\nassistant: "


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
