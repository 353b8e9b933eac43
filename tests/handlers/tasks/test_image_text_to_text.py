"""Images and texts to texts: the texts of transformers' pipeline, chats, limits and bad files."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForImageTextToText, pipeline

from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.http.request import HttpRequest, distinct_names
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests import tiny_multimodal
from tests.images import BROKEN, FILES, IMAGES, TEXTS
from tests.modes.image_text_to_text import chat_about
from tests.sentences import Sentence, refused
from tests.serving import Served
from tests.tiny_multimodal import write_blip

MODE = "image_text_to_text"
FAMILIES = ("llava", "qwen2_vl", "idefics3")
FEW = {"max_new_tokens": 7}
QUESTIONS = ("What is it?", "Which colours are in the picture of the bar?", "Why?", "What is it?")
CHATS = [chat_about(text, asked) for text, asked in zip(TEXTS, QUESTIONS, strict=True)]
BOTH = [
    {
        "role": "user",
        "content": [
            {"type": "image", "image": TEXTS[0]},
            {"type": "text", "text": "Is it"},
            {"type": "image_url", "image_url": f"data:image/png;base64,{TEXTS[2]}"},
            {"type": "text", "text": "too?"},
        ],
    },
    {"role": "assistant", "content": "No."},
    {"role": "user", "content": "Why?"},
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def write(family: str) -> Path:
        folder = tmp_path_factory.mktemp(family)
        getattr(tiny_multimodal, f"write_{family}")(folder, {}, 1)
        return folder

    return write


@pytest.fixture(scope="module")
def models(folders: Callable[[str], Path]) -> Callable[..., Served]:
    @cache
    def load(family: str = "llava", **handler: Any) -> Served:
        return Served(folders(family), MODE, **handler)

    return load


def texts_of_the_pipeline(folder: Path, model: Served, chats: list[Any]) -> list[str]:
    """Return the new texts of the pipeline; its processor is that of the model, without videos."""
    reference = pipeline(
        "image-text-to-text",
        model=AutoModelForImageTextToText.from_pretrained(folder),
        processor=model.engine.task.checkpoint.processor,
    )
    found = [reference(text=chat, return_full_text=False, **FEW) for chat in chats]
    return [each[0]["generated_text"] for each in found]


def as_pipelines_take_it(chat: Any) -> Any:
    """Return a chat whose images are pictures, and whose contents are lists."""
    return [
        {**message, "content": [_part(part) for part in _parts(message["content"])]}
        for message in chat
    ]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _part(part: Any) -> Any:
    if part["type"] == "text":
        return part
    value = part.get("image") or part["image_url"]
    url = value["url"] if isinstance(value, dict) else value
    return {"type": "image", "image": IMAGES[TEXTS.index(url.rpartition(",")[2])]}


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_those_of_the_pipeline_alone_and_together(
    folders: Callable[[str], Path], models: Callable[..., Served], family: str
) -> None:
    model, chats = models(family), [*CHATS, BOTH]
    expected = texts_of_the_pipeline(
        folders(family), model, [as_pipelines_take_it(chat) for chat in chats]
    )
    assert len(set(expected)) > 2
    alone = [model.ask(chat, **FEW)[0]["generated_text"] for chat in chats]
    assert alone == expected
    bodies = [{"inputs": chat, "parameters": FEW} for chat in (*chats, "Once upon", *chats[::-1])]
    together = [answer[0]["generated_text"] for _, answer in model.post(*bodies)]
    assert together[:5] == expected
    assert together[6:] == expected[::-1]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_broken_image_fails_alone(models: Callable[..., Served], family: str) -> None:
    model = models(family)
    bodies = [{"inputs": chat, "parameters": FEW} for chat in CHATS[:2]]
    good = [model.post(body)[0] for body in bodies]
    wrong = {"inputs": chat_about("AAAA", "What is it?"), "parameters": FEW}
    first, broken, second = model.post(bodies[0], wrong, bodies[1])
    assert [first, second] == good
    assert broken[0] == 400
    assert broken[1]["message"].startswith("The image is no image that can be read")


def test_an_image_and_a_text_are_a_chat_or_a_prompt(models: Callable[..., Served]) -> None:
    model = models()
    chat = model.ask(CHATS[0], **FEW)
    assert model.ask({"image": TEXTS[0], "text": QUESTIONS[0]}, **FEW) == chat
    prompt = f"user:<image> {QUESTIONS[0]}assistant:"
    assert model.ask({"images": [TEXTS[0]], "text": prompt}, **FEW) == chat
    whole = model.ask({"image": TEXTS[0], "text": prompt}, return_full_text=True, **FEW)
    assert whole == [{"generated_text": prompt + chat[0]["generated_text"]}]


def test_a_form_has_a_file_and_a_text(models: Callable[..., Served]) -> None:
    model = models()
    row = {"image": bytearray(FILES[0]), "text": b"What is it?", "parameters": json.dumps(FEW)}
    broken = {**row, "image": bytearray(BROKEN)}
    found, refused = model.post(HttpRequest(row, {}), HttpRequest(broken, {}))
    assert found == (200, model.ask(CHATS[0], **FEW))
    assert refused[0] == 400


def test_a_form_has_several_files(models: Callable[..., Served]) -> None:
    """Each is in the field image, as clients send files of one name."""
    model = models()
    names = distinct_names(["image", "image"])
    files = dict(zip(names, map(bytearray, FILES[:2]), strict=True))
    row = {**files, "text": b"What is it?", "parameters": json.dumps(FEW)}
    expected = model.ask({"images": TEXTS[:2], "text": "What is it?"}, **FEW)
    assert model.post(HttpRequest(row, {})) == [(200, expected)]


def test_a_whole_chat_is_returned_without_its_images(models: Callable[..., Served]) -> None:
    (found,) = models().ask(CHATS[0], return_full_text=True, **FEW)
    question, answer = found["generated_text"]
    assert question == {"role": "user", "content": "What is it?"}
    assert answer == {
        "role": "assistant",
        "content": models().ask(CHATS[0], **FEW)[0]["generated_text"],
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_an_image_needs_no_text(models: Callable[..., Served], family: str) -> None:
    model, image = models(family), {"type": "image", "image": TEXTS[0]}
    (alone,) = model.ask([{"role": "user", "content": [image]}], **FEW)
    assert alone["generated_text"]
    assert [alone] == model.ask({"image": TEXTS[0], "text": ""}, **FEW)


# As the templates of Idefics3 and of LLaVA-NeXT read the content of a message, and as templates
# with tools do.
READERS = {
    "idefics3": "{{ m['role'] }}{{ ':' if m['content'][0]['type'] == 'image' else ': ' }}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}<image>{% endif %}{% endfor %}\n",
    "llava_next": "{% if m['role'] == 'user' %}[INST] "
    "{% for part in m['content'] | selectattr('type', 'equalto', 'image') %}<image>\n{% endfor %}"
    "{% for part in m['content'] | selectattr('type', 'equalto', 'text') %}{{ part['text'] }}"
    "{% endfor %} [/INST]{% else %}{{ ' ' + m['content'][0]['text'] }}{% endif %}",
    "tools": "{% if tools %}{{ tools[0].function.name }}{% endif %}{{ m['role'] }}:"
    "{% for part in m['content'] %}{% if part['type'] == 'image' %}<image>{% else %}"
    "{{ part['text'] }}{% endif %}{% endfor %}"
    "{% for call in m.tool_calls or [] %}{{ call | tojson }}{% endfor %}\n",
}
CALL = {"id": "c1", "type": "function", "function": {"name": "measure", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "measure", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("offered", [True, False])
@pytest.mark.parametrize("reader", READERS)
def test_calls_and_results_reach_a_template_of_parts(
    tmp_path: Path, reader: str, offered: bool
) -> None:
    tiny_multimodal.write_llava(tmp_path, {}, 1)
    template = "{% for m in messages %}" + READERS[reader] + "{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    task: Any = Served(tmp_path, MODE).engine.task
    chat = [
        *CHATS[0],
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "7 cm"},
    ]
    query = task.parse(Request(chat, {"tools": [TOOL]} if offered else {}))
    assert query.prompt.count("<image>") == 1
    assert "7 cm" in query.prompt
    if offered or reader != "tools":
        assert "measure" in query.prompt


def test_stop_strings_and_details(models: Callable[..., Served]) -> None:
    text = models().ask(CHATS[0], max_new_tokens=12)[0]["generated_text"]
    stop = text[3]
    (found,) = models().ask(CHATS[0], max_new_tokens=12, stop=[stop], details=True)
    assert found["generated_text"] == text[: text.index(stop)]
    assert found["details"]["finish_reason"] == "stop_sequence"


def test_openais_chat_completions_take_images(models: Callable[..., Served]) -> None:
    body = {"messages": CHATS[1], "max_tokens": 7}
    path = {"url_path": "v1/chat/completions"}
    ((status, answer),) = models().post(HttpRequest({"body": body}, path))
    assert status == 200
    expected = models().ask(CHATS[1], **FEW)[0]["generated_text"]
    assert answer["choices"][0]["message"]["content"] == expected
    assert answer["usage"]["completion_tokens"] == 7


def test_parts_of_other_interfaces_are_those_of_chats(models: Callable[..., Served]) -> None:
    model, url = models(), f"data:image/png;base64,{TEXTS[0]}"
    answer = {"role": "assistant", "content": "No."}
    image, text = {"type": "image_url", "image_url": url}, {"type": "text", "text": "Is it?"}
    chat = [{"role": "user", "content": [image, text]}, answer, {"role": "user", "content": "Why?"}]
    others = [
        {
            "role": "user",
            "content": [{**image, "type": "input_image"}, {**text, "type": "input_text"}],
        },
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        chat[2],
    ]
    without_types = [
        {"role": "user", "content": [{"image_url": {"url": url}}, {"text": "Is it?"}]},
        *chat[1:],
    ]
    expected = model.ask(chat, **FEW, return_full_text=False)
    for same in (others, without_types):
        assert model.ask(same, **FEW, return_full_text=False) == expected


def test_a_stream_has_the_same_text(models: Callable[..., Served]) -> None:
    sent: list[HttpResponse] = []
    body = {"messages": CHATS[1], "max_tokens": 7, "stream": True}
    request = HttpRequest({"body": body}, {"url_path": "v1/chat/completions"}, sent.append)
    (last,) = models().dispatcher.dispatch([request], Meter())
    events = b"".join(each.body for each in (*sent, last)).decode().split("\n\n")
    chunks = [
        json.loads(each.removeprefix("data: ")) for each in events if each.startswith("data: {")
    ]
    deltas = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
    assert len(sent) > 2
    assert "".join(deltas) == models().ask(CHATS[1], **FEW)[0]["generated_text"]


@pytest.mark.parametrize(
    ("inputs", "parameters", "status", "facts"),
    [
        ("<image>", {}, 400, ["<image>", "1"]),
        ({"images": TEXTS[:2], "text": "<image>?"}, {}, 400, ["<image>", "1"]),
        ({"image": TEXTS[0]}, {}, 400, ["image", "inputs"]),
        ({"image": TEXTS[0], "text": " "}, {}, 400, ["text"]),
        ({"images": TEXTS * 3, "text": "?"}, {}, 413, ["12"]),
        (chat_about("", "Why?"), {}, 400, ["messages[0].content"]),
        ([{"role": "user", "content": [{"type": "image"}]}], {}, 400, ["messages[0].content"]),
        ([{"role": "user", "content": [{"type": "audio"}]}], {}, 400, ["messages[0].content"]),
        (CHATS[0], {"truncate": 4}, 422, ["truncate"]),
        (CHATS[0], {"prompt_lookup_num_tokens": 3}, 422, ["prompt_lookup_num_tokens"]),
        (BOTH, {"num_beams": 2}, 422, ["texts"]),
        (chat_about(TEXTS[0], "a " * 240), {}, 413, ["prompt"]),
        ([{"role": "user", "content": []}], {}, 400, ["messages"]),
    ],
)
def test_what_cannot_be_read_is_refused(
    models: Callable[..., Served], inputs: Any, parameters: Any, status: int, facts: list[str]
) -> None:
    found, sentence = models().refuse(inputs, **parameters)
    assert (found, sentence) == (status, Sentence(*facts))


@pytest.mark.parametrize(
    "chat",
    [chat_about(TEXTS[0], "What is <image>?"), [{"role": "user", "content": "What is <image>?"}]],
)
def test_a_message_may_have_the_name_of_the_image_token(
    models: Callable[..., Served], chat: Any
) -> None:
    model = models()
    task: Any = model.engine.task
    query = task.parse(Request(chat, FEW))
    (rows,) = task.encode([query])
    token = task.tokenizer.convert_tokens_to_ids("<image>")
    plain = task.encode([task.parse(Request(_without_name(chat), FEW))])[0]
    count = list(rows[0].features["input_ids"]).count(token)
    assert count == list(plain[0].features["input_ids"]).count(token)
    assert model.ask(chat, **FEW)[0]["generated_text"]


def _without_name(chat: Any) -> Any:
    return json.loads(json.dumps(chat).replace("<image>", "it"))


def test_tokens_of_other_files_are_refused(models: Callable[..., Served]) -> None:
    model = models("qwen2_vl")
    expected = "The text has <|video_pad|>, which stands for a file; leave it out."
    assert model.refuse("<|video_pad|>") == (400, expected)
    ids = model.engine.task.checkpoint.tokenizer.convert_tokens_to_ids(["Why", "<|image_pad|>"])
    request = HttpRequest({"body": {"prompt": ids}}, {"url_path": "v1/completions"})
    ((status, answer),) = model.post(request)
    assert status == 400
    assert answer["error"]["message"].startswith("The prompt has the token of an image")


def test_a_template_that_leaves_an_image_out_is_reported(tmp_path: Path) -> None:
    tiny_multimodal.write_llava(tmp_path, {}, 1)
    (tmp_path / "chat_template.jinja").write_text(
        "{% for part in messages[-1]['content'] %}"
        "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    )
    status, sentence = Served(tmp_path, MODE).refuse(CHATS[0])
    assert status == 400
    assert sentence.startswith("The model's chat template has 0 images for the 1 of these messages")


def test_urls_are_fetched_from_allowed_hosts_only(models: Callable[..., Served]) -> None:
    url = {"url": "https://169.254.169.254/a.png"}
    parts = [{"type": "image_url", "image_url": url}, {"type": "text", "text": "What is it?"}]
    chat = [{"role": "user", "content": parts}]
    status, sentence = models().refuse(chat)
    assert (status, "is a URL, and this model fetches none" in sentence) == (422, True)


def test_a_template_of_texts_has_the_image_token_in_them(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    tiny_multimodal.write_llava(folder, {}, 1)
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message['role'] }}:{{ message['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    model = Served(folder, MODE)
    prompt = "user:<image>What is it?\nassistant:"
    assert model.ask(CHATS[0], **FEW) == model.ask({"image": TEXTS[0], "text": prompt}, **FEW)


def test_a_model_whose_prompts_have_no_images_is_refused(tmp_path: Path) -> None:
    write_blip(tmp_path, {}, 0)
    path = tmp_path / "config.json"
    document = path.read_text().replace("BlipForQuestionAnswering", "BlipForConditionalGeneration")
    path.write_text(document)
    with refused(WrongCheckpoint, "BlipProcessor"):
        Served(tmp_path, MODE)
