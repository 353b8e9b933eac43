"""Questions to a decoder, compared with transformers' scores of the token after the prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from hf_serve.handlers.batching.padding import Padding, pad
from hf_serve.handlers.batching.rows import Row
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import RequestTooLarge, Unprocessable
from hf_serve.handlers.formats.pretrained import PretrainedModel
from hf_serve.handlers.generation.backends.transformers_paged import PagedModel
from hf_serve.handlers.generation.batch_scheduler import BatchScheduler
from hf_serve.handlers.generation.option_probabilities import LABELS
from hf_serve.handlers.types.decisions import PREDICATE, Option, Question
from hf_serve.handlers.types.request import Request, TokenCount
from tests import families, tiny_answers
from tests.handlers.generation.test_chat import TEMPLATE
from tests.sentences import Sentence
from tests.serving import Served, differences

CHAT = TEMPLATE.replace("assistant: ", "assistant:\n")
TEXT = "Nina Vogel sings in the old bar near the river in Paris on Mondays."
OPTIONS = (Option("music", "songs"), Option("weather"), Option("a long name of many tokens"))
QUESTIONS = [
    Question("predicate", TEXT, "Nina sings."),
    Question("predicate", TEXT, "Sings?", (Option("true", "she does"), Option("false"))),
    Question("choice", TEXT, "What is it about?", OPTIONS),
    Question("score", TEXT, "How old is the bar?", (Option("new"), Option("old"))),
]
EXPLAINED = {"method": "feature_ablation", "granularity": "token"}
OTHER = Question("predicate", "The weather is nice today.", "It rains.")


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Served]:
    loaded: dict[str, Served] = {}

    def load(template: str | None = None, **handler: Any) -> Served:
        key = repr((template, handler))
        if key not in loaded:
            folder = tmp_path_factory.mktemp("answers") / "model"
            model = tiny_answers.write(folder, template)
            loaded[key] = Served(model, tiny_answers.MODE, **handler)
        return loaded[key]

    return load


def decide(model: Served, *questions: Question) -> list[Any]:
    return list(model.engine.predict([Request(each) for each in questions]))


def parts_of(model: Served) -> tuple[Any, Any, Any]:
    """Return the task, its tokenizer and the module of a model."""
    task: Any = model.engine.task
    loaded: Any = model.engine.model
    return task, task.tokenizer, loaded.module


def expected(model: Served, question: Question) -> list[float]:
    """Return the probabilities that transformers gives the labels after the prompt."""
    task, tokenizer, module = parts_of(model)
    prompt = task.parse(Request(question)).prompt
    ids = tokenizer(prompt, add_special_tokens=not tokenizer.chat_template)["input_ids"]
    labels = LABELS[question.kind][: len(question.options)]
    space = "" if tokenizer.chat_template else " "
    tokens = [tokenizer.convert_tokens_to_ids(space + label) for label in labels]
    with torch.no_grad():
        logits = module(torch.tensor([ids])).logits[0, -1, tokens]
    return list(logits.double().softmax(0).tolist())


@pytest.mark.parametrize("template", [None, CHAT])
def test_the_labels_have_the_probabilities_of_their_tokens_after_the_prompt(
    load: Callable[..., Served], template: str | None
) -> None:
    model = load(template)
    together = decide(model, *QUESTIONS, OTHER)
    for question, found in zip((*QUESTIONS, OTHER), together, strict=True):
        assert found == pytest.approx(expected(model, question), abs=1e-5)
        assert decide(model, question) == [pytest.approx(found, abs=1e-5)]
        assert sum(found) == pytest.approx(1, abs=1e-9)


def test_the_prompt_says_what_each_label_means(load: Callable[..., Served]) -> None:
    prompts = [load().engine.task.parse(Request(each)).prompt for each in QUESTIONS]
    assert prompts[1] == (f"{TEXT}\n\nSings?\nYes: she does\nAnswer with Yes or No only.\nAnswer:")
    assert prompts[2] == (
        f"{TEXT}\n\nWhat is it about?\nA: music: songs\nB: weather\nC: a long name of many tokens\n"
        "Answer with the letter of one option only.\nAnswer:"
    )
    assert "0: new\n1: old\nAnswer with the number of one level only." in prompts[3]


def test_the_text_of_several_questions_is_computed_once(
    load: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load()
    computed = []
    run = PretrainedModel.last_scores

    def record(self: PretrainedModel, batch: Any, lengths: Any, prefix: Any = None) -> Any:
        computed.append((sum(lengths), prefix is not None))
        return run(self, batch, lengths, prefix)

    monkeypatch.setattr(PretrainedModel, "last_scores", record)
    counts = [TokenCount() for _ in QUESTIONS]
    model.engine.predict(
        [Request(each, token_count=count) for each, count in zip(QUESTIONS, counts, strict=True)]
    )
    _, tokenizer, _ = parts_of(model)
    text = len(tokenizer(TEXT)["input_ids"])
    whole = sum(each.tokens for each in counts)
    assert all(continues for _, continues in computed)
    assert sum(tokens for tokens, _ in computed) <= whole - len(QUESTIONS) * text


def test_a_question_that_is_too_long_leaves_the_others_their_answers(
    load: Callable[..., Served],
) -> None:
    model = load(truncation=True)
    long = Question("predicate", "sings " * 45, "Nina sings. " * 200)
    options = tuple(Option(str(number)) for number in range(27))
    many = Question("choice", TEXT, "Which?", options)
    own, too_long, too_many, other = decide(model, QUESTIONS[0], long, many, OTHER)
    assert own == pytest.approx(expected(model, QUESTIONS[0]), abs=1e-5)
    assert other == pytest.approx(expected(model, OTHER), abs=1e-5)
    assert isinstance(too_many, Unprocessable) and str(too_many) == Sentence("choice", 27, 26)
    assert isinstance(too_long, RequestTooLarge) and str(too_long) == Sentence("tokens", 128)


def test_no_part_of_a_text_is_left_out(load: Callable[..., Served]) -> None:
    model = load(max_length=40, truncation=True)
    (outcome,) = decide(model, QUESTIONS[2])
    assert isinstance(outcome, RequestTooLarge) and str(outcome) == Sentence("tokens", 40)


def test_an_answer_that_begins_with_thoughts_is_refused(load: Callable[..., Served]) -> None:
    template = CHAT + "{% if add_generation_prompt %}<think>{% endif %}"
    (outcome,) = decide(load(template), OTHER)
    assert isinstance(outcome, Unprocessable) and str(outcome) == Sentence("thoughts")


def test_thoughts_that_a_template_ends_are_no_obstacle(load: Callable[..., Served]) -> None:
    end = "{% if add_generation_prompt and not enable_thinking %}<think>\n</think>{% endif %}"
    model = load(CHAT + end)
    (found,) = decide(model, OTHER)
    assert "</think>" in model.engine.task.parse(Request(OTHER)).prompt
    assert sum(found) == pytest.approx(1)


def test_a_model_without_such_tokens_refuses(served: Callable[..., Served]) -> None:
    (outcome,) = decide(served(tiny_answers.MODE, family="Llama"), OTHER)
    assert isinstance(outcome, Unprocessable) and str(outcome) == Sentence("Yes", "No")


def test_questions_and_prompts_share_a_batch(load: Callable[..., Served]) -> None:
    model = load()
    prompt = Request("Once upon", {"max_new_tokens": 3})
    (expected_text,) = model.engine.predict([prompt])
    text, found = model.engine.predict([prompt, Request(OTHER)])
    assert text == expected_text and found == pytest.approx(expected(model, OTHER), abs=1e-5)


@pytest.mark.parametrize("scheduler", [BatchScheduler, PagedModel])
def test_continuous_batching_answers_questions(
    load: Callable[..., Served], tmp_path: Path, scheduler: type[BatchScheduler]
) -> None:
    model = load()
    folder = tiny_answers.write(tmp_path / "model")
    handler = {"mode": tiny_answers.MODE, "dtype": "float32"}
    config = ModelConfig.parse({"handler": handler, "continuousBatching": True})
    engine = Engine.load(folder, config)
    if scheduler is BatchScheduler:
        engine.model = BatchScheduler(model.engine.model, 4, 4)
    assert isinstance(engine.model, scheduler)
    found = engine.predict([Request(each) for each in (*QUESTIONS, OTHER)])
    for own, question in zip(found, (*QUESTIONS, OTHER), strict=True):
        assert own == pytest.approx(expected(model, question), abs=1e-4)
    (explained,) = engine.explain([Request(QUESTIONS[2], EXPLAINED)])
    (same,) = model.engine.explain([Request(QUESTIONS[2], EXPLAINED)])
    assert not differences(explained, same, 1e-4)


def test_predicates_have_two_options_by_default() -> None:
    assert OTHER.options is PREDICATE


@pytest.mark.parametrize("template", [None, CHAT])
def test_the_words_of_an_answer_change_the_probability_of_its_token(
    load: Callable[..., Served], template: str | None
) -> None:
    model, question = load(template), QUESTIONS[2]
    found: Any = model.engine.explain([Request(question, EXPLAINED)])[0]
    task, tokenizer, module = parts_of(model)
    state = task.parse(Request(question))
    encoding = tokenizer(state.prompt, add_special_tokens=not template)[0]
    probabilities = expected(model, question)
    best = int(np.argmax(probabilities))

    def score(ids: list[int]) -> float:
        with torch.no_grad():
            logits = module(torch.tensor([ids])).logits[0, -1]
        return float(logits.log_softmax(0)[state.labels[best]])

    whole, start = score(encoding.ids), state.prompt.index(TEXT)
    for place, (first, last) in enumerate(encoding.offsets):
        ids = [*encoding.ids]
        ids[place] = task.checkpoint.baseline_token_id
        is_explained = last > start and first < start + len(TEXT)
        change = whole - score(ids) if is_explained else 0.0
        assert found["attributions"][place] == pytest.approx(change, abs=1e-4)
        words = TEXT[slice(*found["offsets"][place])]
        assert words == (state.prompt[first:last].strip() if is_explained else "")
    labels = [
        {"label": each.name, "score": pytest.approx(score, abs=1e-5)}
        for each, score in zip(OPTIONS, probabilities, strict=True)
    ]
    assert found["prediction"] == labels[best]
    assert found["target"] == {**labels[best], "index": best}


def test_an_explanation_looks_for_the_text_in_its_prompt_once(
    load: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load()
    task: Any = model.engine.task
    found = Mock(wraps=task.text_in_question)
    monkeypatch.setattr(task, "text_in_question", found)
    model.engine.explain([Request(QUESTIONS[2], EXPLAINED)])
    assert found.call_count == 1


def test_another_option_may_be_explained(load: Callable[..., Served]) -> None:
    settings = {**EXPLAINED, "target": "weather"}
    found: Any = load().engine.explain([Request(QUESTIONS[2], settings)])[0]
    assert (found["target"]["label"], found["target"]["index"]) == ("weather", 1)


# Caches of all tokens, with windows and with recurrent states, and other families at night.
FAMILIES = ("gpt2", "llama", "mistral", "gemma3_text", "mamba", "bloom")
OTHERS = (
    "biogpt",
    "cohere",
    "ctrl",
    "falcon",
    "gemma2",
    "glm4",
    "gpt_bigcode",
    "gpt_neox",
    "gptj",
    "granite",
    "jamba",
    "lfm2",
    "minimax",
    "mixtral",
    "mpt",
    "olmo2",
    "opt",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_5_text",
    "qwen3_moe",
    "qwen3_next",
    "rwkv",
    "smollm3",
    "stablelm",
    "starcoder2",
    "xlnet",
)


@pytest.mark.parametrize(
    "family", [*FAMILIES, *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHERS)]
)
def test_rows_that_continue_a_prefix_have_the_scores_of_whole_rows(family: str) -> None:
    module = families.module(family, tiny_answers.MODE)
    model = PretrainedModel(module.requires_grad_(requires_grad=False), ("logits",))
    generator = np.random.default_rng(0)
    prefix = generator.integers(5, 99, 40).tolist()
    ends = [generator.integers(5, 99, length).tolist() for length in (3, 9, 17)]
    with torch.no_grad():
        alone = [module(input_ids=torch.tensor([[*prefix, *end]])).logits[0, -1] for end in ends]
    expected = torch.stack(alone).float().numpy()
    padding, shared = Padding({"input_ids": 1}), model.read_prefix(prefix)
    for _ in range(2):
        rows = [Row({"input_ids": end if shared else [*prefix, *end]}) for end in ends]
        found = model.last_scores(pad(rows, padding), [len(row) for row in rows], shared)
        largest = max(1.0, float(np.abs(expected).max()))
        assert np.abs(found - expected).max() <= 1e-3 * largest


def test_a_checkpoint_in_another_format_refuses(
    packed_openvino: Callable[[], Served],
) -> None:
    (outcome,) = decide(packed_openvino(), OTHER)
    assert isinstance(outcome, Unprocessable) and str(outcome) == Sentence("save_mode: pretrained")


@pytest.fixture
def packed_openvino(tmp_path: Path) -> Callable[[], Served]:
    """A model whose YAML says that it is exported; its task reads that alone."""

    def load() -> Served:
        model = Served(tiny_answers.write(tmp_path / "model"), tiny_answers.MODE)
        task = model.engine.task
        task.settings = task.settings.model_copy(update={"save_mode": "openvino"})
        return model

    return load
