"""End tokens of a checkpoint that are words: texts have them, as in transformers' pipelines.

A word that the tiny model writes becomes one of the end tokens of its `generation_config.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from tests import tiny
from tests.handlers.generation.test_special_stops import ENGINES, MODE, PROMPT, Ending, Story, parts
from tests.handlers.generation.test_special_stops import ending as text_of
from tests.serving import Served


@dataclass(frozen=True)
class Word(Ending):
    """A checkpoint that ends a text at a word; `text` is the whole text, with the word."""

    text: str


@pytest.fixture(scope="module")
def word(tmp_path_factory: pytest.TempPathFactory) -> Word:
    folder = tiny.write(tmp_path_factory.mktemp("word"), MODE)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    inputs = tokenizer(PROMPT, return_tensors="pt")
    length = inputs["input_ids"].shape[1]
    story = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, length:].tolist()
    token = next(each for at, each in enumerate(story) if at > 1 and each not in story[:at])
    file = folder / "generation_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    own = settings.get("eos_token_id", model.config.eos_token_id)
    settings["eos_token_id"] = [own, token]
    file.write_text(json.dumps(settings), encoding="utf-8")
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    ended = model.generate(**inputs, max_new_tokens=12, do_sample=False, eos_token_id=[own, token])
    text = tokenizer.decode(ended[0], skip_special_tokens=True).removeprefix(PROMPT)
    before = tokenizer.decode(ended[0, :-1], skip_special_tokens=True).removeprefix(PROMPT)
    assert len(text) > len(before) > 0
    return Word(folder, before, token, text)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.openvino if name == "openvino" else ())
        for name in ENGINES
    ],
)
def story(request: Any, word: Word) -> Story:
    settings = dict(ENGINES[request.param])
    continuous = {"continuousBatching": settings.pop("continuousBatching", False)}
    section = {"mode": MODE, "dtype": "float32", **settings}
    config = ModelConfig.parse({**continuous, "handler": section})
    if request.param == "openvino":
        formats.export(word.folder, config, word.folder)
    return Story(Served.of(Engine.load(word.folder, config)), word)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["", "generate", "v1/completions", "v1/chat/completions"])
def test_every_route_returns_the_word(story: Story, word: Word, path: str, stream: bool) -> None:
    assert text_of(story, path, stream) == word.text


@pytest.mark.parametrize("path", ["", "v1/completions"])
def test_a_stop_token_of_the_request_is_left_out(story: Story, word: Word, path: str) -> None:
    assert text_of(story, path, False, stop_token_ids=[word.token]) == word.before


@pytest.mark.parametrize("stream", [False, True])
def test_the_log_probabilities_have_the_word(story: Story, word: Word, stream: bool) -> None:
    answer = story.post("v1/completions", prompt=PROMPT, max_tokens=12, logprobs=1, stream=stream)
    choices = [part["choices"][0] for part in parts(answer, stream)]
    found = [each["logprobs"] for each in choices if each["logprobs"]]
    tokens = [token for each in found for token in each["tokens"]]
    offsets = [offset for each in found for offset in each["text_offset"]]
    assert "".join(tokens) == word.text
    assert offsets == [0, *accumulate(map(len, tokens))][:-1]


def test_the_tokens_of_the_details_have_the_word(story: Story, word: Word) -> None:
    parameters = {"max_new_tokens": 12, "details": True}
    ((result,),) = parts(story.post("", inputs=PROMPT, parameters=parameters), False)
    assert result["details"]["tokens"][-1]["id"] == word.token
    assert result["details"]["generated_tokens"] == len(result["details"]["tokens"])


@pytest.mark.parametrize("beams", [1, 2])
def test_a_text_of_a_pipeline_has_the_word(word: Word, beams: int) -> None:
    """Beams, whose tokens come at the end, too."""
    config = ModelConfig.parse({"handler": {"mode": MODE, "dtype": "float32"}})
    model = Served.of(Engine.load(word.folder, config))
    (found,) = model.ask(
        PROMPT, max_new_tokens=12, num_beams=beams, return_full_text=False, stop=["never"]
    )
    tokenizer = AutoTokenizer.from_pretrained(word.folder)
    reference = AutoModelForCausalLM.from_pretrained(word.folder).eval()
    inputs = tokenizer(PROMPT, return_tensors="pt")
    ids = reference.generate(**inputs, max_new_tokens=12, do_sample=False, num_beams=beams)[0]
    assert PROMPT + found["generated_text"] == tokenizer.decode(ids, skip_special_tokens=True)


def test_a_text_with_a_grammar_ends_without_the_word(word: Word) -> None:
    config = ModelConfig.parse({"handler": {"mode": MODE, "dtype": "float32"}})
    story = Story(Served.of(Engine.load(word.folder, config)), word)
    bias = {str(word.token): 100}  # The end that the grammar allows last.
    body = {"prompt": PROMPT, "max_tokens": 12, "guided_regex": "Ada", "logit_bias": bias}
    (choice,) = parts(story.post("v1/completions", **body), False)[0]["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Ada", "stop")
