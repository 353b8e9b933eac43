"""Assisted decoding: a draft model changes the work and not the text."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import formats
from hf_serve.handlers.config.handler_section import ASSISTANT_FOLDER
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.sentences import Sentence, refused
from tests.serving import Served, stream_into
from tests.tiny_tokenizers import write_llama

MODE = "text_generation"
TEXTS = ("Nina sings in the old bar near the river", "Ada", "北京 是")


def with_assistant(folder: Path, *, seed: int = 0, **draft: Any) -> Path:
    """Write a GPT-2, and a draft model, which is the same one with the same seed."""
    tiny.write(folder, MODE)
    tiny.write(folder / ASSISTANT_FOLDER, MODE, seed=seed, **draft)
    return folder


@pytest.fixture(scope="module")
def assisted(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = with_assistant(tmp_path_factory.mktemp("other_draft"), seed=1, n_layer=1)
    return Served(folder, MODE, assistant_model="org/draft")


@pytest.fixture(scope="module")
def foreseen(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = with_assistant(tmp_path_factory.mktemp("same_draft"))
    return Served(folder, MODE, assistant_model="org/draft")


@pytest.fixture(scope="module")
def plain(served: Callable[..., Served]) -> Served:
    return served(MODE)


@pytest.mark.parametrize(
    "given",
    [
        {},
        pytest.param({"num_assistant_tokens": 1}, marks=pytest.mark.nightly),
        {"num_assistant_tokens": 5, "assistant_confidence_threshold": 0.0},
        {"assistant_confidence_threshold": 1.0},
        {"stop": ["e"]},
        {"stop": ["never in it"], "min_new_tokens": 20},
        {"frequency_penalty": 0.5, "repetition_penalty": 1.3},
        pytest.param({"no_repeat_ngram_size": 2}, marks=pytest.mark.nightly),
        pytest.param({"logit_bias": {"5": 3}}, marks=pytest.mark.nightly),
        {"presence_penalty": 1.0, "bad_words": ["e", "a"], "return_token_ids": True},
        {"allowed_token_ids": [5, 6, 7, 8, 20, 30, 40], "ignore_eos": True},
        {"stop_token_ids": list(range(100, 180)), "min_new_tokens": 3},
        {"prompt_lookup_num_tokens": 3},
    ],
)
@pytest.mark.parametrize("kind", ["assisted", "foreseen"])
def test_the_text_is_that_without_a_draft_model(
    kind: str, given: dict[str, Any], plain: Served, request: pytest.FixtureRequest
) -> None:
    model: Served = request.getfixturevalue(kind)
    settings = {"max_new_tokens": 24, "details": True, "logprobs": False}
    others = {name: value for name, value in given.items() if "assistant" not in name}
    for text in TEXTS:
        assert model.ask(text, **settings, **given) == plain.ask(text, **settings, **others)


@pytest.mark.parametrize("new_tokens", [1, 9])
@pytest.mark.parametrize("drafts", [{}, {"prompt_lookup_num_tokens": 3}])
def test_a_prompt_that_ends_with_an_end_token_is_continued(
    foreseen: Served, plain: Served, drafts: dict[str, Any], new_tokens: int
) -> None:
    tokenizer = plain.engine.task.checkpoint.tokenizer
    for text in TEXTS:
        last = tokenizer(text)["input_ids"][-1]
        settings = {"details": True, "logprobs": False, "max_new_tokens": new_tokens}
        given = {**settings, "stop_token_ids": [last]}
        (expected,) = plain.ask(text, **given)
        assert expected["details"]["generated_tokens"] > 0
        assert foreseen.ask(text, **given, **drafts) == [expected]


def test_drafted_tokens_are_computed_together(
    foreseen: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_forwards(foreseen, monkeypatch)
    drafts = {"num_assistant_tokens": 5, "assistant_confidence_threshold": 0.0}
    foreseen.ask("Ada", max_new_tokens=24, details=True, logprobs=False, **drafts)
    assert len(calls) <= 5
    foreseen.ask("Ada", max_new_tokens=24, num_assistant_tokens=1)
    assert len(calls) > 10


@pytest.mark.parametrize(
    "given",
    [
        {"do_sample": True, "seed": 3},
        {"num_beams": 2},
        {"details": True},
        {"grammar": {"type": "regex", "value": "[a-z ]{24}"}},
    ],
)
def test_sampled_searched_recorded_and_bound_texts_have_no_drafts(
    foreseen: Served, plain: Served, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_forwards(foreseen, monkeypatch)
    assert foreseen.ask("Ada", max_new_tokens=9, **given) == plain.ask(
        "Ada", max_new_tokens=9, **given
    )
    assert len(calls) >= 9


def test_batches_and_streams_have_no_drafts(foreseen: Served, plain: Served) -> None:
    parts: list[str] = []
    settings = {"max_new_tokens": 24, "num_assistant_tokens": 5}
    requests = [Request(text, settings) for text in TEXTS]
    streamed = Request("Ada", settings, stream=stream_into(parts))
    expected = [plain.ask(text, max_new_tokens=24) for text in (*TEXTS, "Ada")]
    assert foreseen.engine.predict([*requests, streamed]) == expected
    assert len(parts) > 1


def test_texts_beyond_the_positions_of_the_draft_model_have_no_drafts(
    tmp_path: Path, plain: Served
) -> None:
    folder = with_assistant(tmp_path, seed=1, n_positions=16)
    model = Served(folder, MODE, assistant_model="org/draft")
    for new in (8, 40):
        assert model.ask("a a a", max_new_tokens=new) == plain.ask("a a a", max_new_tokens=new)


@pytest.mark.parametrize("name", ["num_assistant_tokens", "assistant_confidence_threshold"])
def test_a_model_without_a_draft_model_refuses_its_parameters(plain: Served, name: str) -> None:
    status, sentence = plain.refuse("Ada", **{name: 1})
    assert status == 422
    assert sentence == Sentence(name, "assistant_model")


def test_a_draft_model_that_does_not_fit_stops_the_load(tmp_path: Path) -> None:
    config = ModelConfig.parse({"handler": {"mode": MODE, "assistant_model": "org/draft"}})
    folder = with_assistant(tmp_path / "model")
    draft = folder / ASSISTANT_FOLDER

    def refusal() -> str:
        with pytest.raises(WrongCheckpoint) as raised:
            Engine.load(folder, config)
        return str(raised.value)

    tiny.write(draft, MODE, vocab_size=512)
    assert refusal() == Sentence(512, 400)
    windowed = {"sliding_window": 16, "num_key_value_heads": 2}
    tiny.write(draft, MODE, family="Mistral", **windowed)
    assert refusal() == Sentence("MistralForCausalLM")
    write_llama(draft)
    assert refusal() == Sentence("assistant_model", "tokenizer")
    shutil.rmtree(draft)
    assert refusal() == Sentence("assistant_model")


@pytest.mark.parametrize(
    "keys",
    [
        {"handler": {"mode": "sequence_classification"}},
        {"handler": {"mode": MODE, "save_mode": "openvino"}},
        {"handler": {"mode": MODE, "save_mode": "openvino"}, "continuousBatching": True},
        {"handler": {"mode": MODE, "device_map": "auto"}},
    ],
)
def test_a_draft_model_goes_with_pretrained_generation_on_one_device(keys: Any) -> None:
    document = {**keys, "handler": {**keys["handler"], "assistant_model": "org/draft"}}
    with refused(WrongConfig, "handler.assistant_model"):
        formats.check_config(ModelConfig.parse(document))


def count_forwards(model: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an item for each forward pass of the model itself."""
    module: Any = getattr(model.engine.model, "module")  # noqa: B009
    forward, calls = module.forward, list[int]()

    def count(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return forward(*arguments, **options)

    monkeypatch.setattr(module, "forward", count)
    return calls
