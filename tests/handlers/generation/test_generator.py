from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from hf_serve.handlers.batching.padding import Padding
from hf_serve.handlers.batching.rows import RowOutcome, require_outputs
from hf_serve.handlers.errors import DeadlineExceeded, InternalError
from hf_serve.handlers.generation.generator import Generator, Prompt
from hf_serve.handlers.generation.parameters import GenerationParameters
from hf_serve.handlers.model import ForwardOnlyModel
from hf_serve.handlers.process.deadline import NO_DEADLINE, Deadline
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.sentences import Sentence
from tests.serving import Served, stream_into

TextRequest = tuple[str, dict[str, Any]]
MODE = "text_generation"
END = 48  # a token that the tiny model writes often
PROMPTS = ("Once upon a time there was a fox", "The café in Zürich", "北京 是")
SETTINGS: list[dict[str, Any]] = [
    {},
    {"max_new_tokens": 1},
    {"max_new_tokens": 12},
    {"max_new_tokens": 12, "min_new_tokens": 8},
    {"max_new_tokens": 12, "repetition_penalty": 1.4},
    {"max_new_tokens": 12, "no_repeat_ngram_size": 2},
    {"max_new_tokens": 12, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0},
    {"max_new_tokens": 9, "num_beams": 3},
    {"max_new_tokens": 9, "num_beams": 3, "length_penalty": 2.0, "num_return_sequences": 2},
    {"max_new_tokens": 9, "num_beams": 2, "early_stopping": True, "repetition_penalty": 1.2},
    {"max_new_tokens": 9, "do_sample": True, "seed": 11},
    {"max_new_tokens": 9, "do_sample": True, "seed": 12, "temperature": 1.7, "top_k": 0},
    {"max_new_tokens": 9, "do_sample": True, "seed": 12, "top_k": 4, "top_p": 0.9},
    {"max_new_tokens": 9, "do_sample": True, "seed": 13, "num_return_sequences": 3},
    {"max_new_tokens": 9, "do_sample": True, "seed": 14, "min_p": 0.05, "typical_p": 0.9},
    {"max_new_tokens": 9, "do_sample": True, "seed": 15, "num_beams": 2},
]
REQUESTS: list[TextRequest] = [(text, given) for given in SETTINGS for text in PROMPTS]


@pytest.fixture(scope="module", params=[False, True], ids=["GPT-2", "with frequent special ids"])
def model(request: Any, tmp_path_factory: Any) -> Served:
    folder: Path = tmp_path_factory.mktemp("gpt2")
    if not request.param:
        return Served(tiny.write(folder, MODE), MODE)
    tiny.write(folder, MODE, eos_token_id=END)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    padded = {**settings, "pad_token": "0"}  # written often, and penalties count it
    (folder / "tokenizer_config.json").write_text(json.dumps(padded))
    return Served(folder, MODE)


@pytest.fixture
def tiny_gpt2(served: Callable[..., Served]) -> Served:
    return served(MODE)


@pytest.fixture(scope="module")
def expected(model: Served) -> list[list[dict[str, str]]]:
    """The text that `generate` itself writes after each prompt, one at a time."""
    return [generated(model, text, given) for text, given in REQUESTS]


def generated(model: Served, text: str, given: dict[str, Any]) -> list[dict[str, str]]:
    tokenizer = model.engine.task.checkpoint.tokenizer
    module = getattr(model.engine.model, "module")  # noqa: B009
    given = {"max_new_tokens": 50, "do_sample": False, **given}
    torch.manual_seed(given.pop("seed", 0))
    inputs = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        rows = module.generate(**inputs, pad_token_id=tokenizer.pad_token_id, **given).tolist()
    start, end = inputs["input_ids"].shape[1], module.config.eos_token_id
    ended = [row[: row.index(end, start)] if end in row[start:] else row for row in rows]
    return [{"generated_text": tokenizer.decode(row, skip_special_tokens=True)} for row in ended]


def test_a_single_prompt_gets_the_text_of_generate(model: Served, expected: list[Any]) -> None:
    for (text, given), answer in zip(REQUESTS, expected, strict=True):
        assert model.ask(text, **given) == answer, given


def test_other_prompts_in_a_batch_do_not_change_an_answer(
    model: Served, expected: list[Any]
) -> None:
    numbers = [int(number) for number in np.random.default_rng(0).permutation(len(REQUESTS))]
    bodies = [{"inputs": text, "parameters": given} for text, given in REQUESTS]
    replies = model.post(*[bodies[number] for number in numbers])
    for number, (_, answer) in zip(numbers, replies, strict=True):
        assert answer == expected[number], REQUESTS[number]


def test_a_forced_end_token_is_the_last_of_each_prompt(
    tiny_gpt2: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    task: Any = tiny_gpt2.engine.task
    monkeypatch.setattr(
        task.generation_config, "forced_eos_token_id", task.generation_config.eos_token_id
    )
    given = {"details": True, "min_new_tokens": 4}
    bodies = [{"inputs": "Ada", "parameters": {**given, "max_new_tokens": most}} for most in (5, 8)]
    assert tiny_gpt2.post(*bodies) == [tiny_gpt2.post(body)[0] for body in bodies]


def test_prompts_near_the_last_position_do_not_break_their_batch(
    model: Served, caplog: Any
) -> None:
    bodies = [{"inputs": "a" * count, "parameters": {}} for count in (127, 120, 90, 3)]
    with caplog.at_level(logging.ERROR):
        replies = model.post(*bodies)
    assert replies == [model.post(body)[0] for body in bodies]
    assert [status for status, _ in replies] == [200] * 4
    assert not caplog.messages


def test_a_text_ends_at_the_eos_token_even_if_its_id_is_0(model: Served) -> None:
    class Fixed(ForwardOnlyModel):
        def forward(self, batch: Any) -> Any:
            raise NotImplementedError

        def generate(self, batch: Any, config: Any, **_: Any) -> torch.Tensor:
            new = torch.tensor([[5, 0, 7, 8]]).expand(len(batch["input_ids"]), -1)
            return torch.cat([batch["input_ids"], new], dim=1)

    base, padding = GenerationConfig(eos_token_id=0), Padding({"input_ids": 0}, "left")
    tokenizer: Any = model.engine.task.checkpoint.tokenizer
    generator = Generator(Fixed(), tokenizer, base, padding, Meter())
    prompts = [
        Prompt({"input_ids": ids}, None, GenerationParameters(), new_tokens)
        for ids, new_tokens in (([3, 4], 4), ([3], 1))
    ]
    outputs = require_outputs(generator.generate(prompts, budget=100))
    found = [output["sequences"][0].tolist() for output in outputs]
    assert found == [[5], [5]]


class DeadlineOfQuestions(Deadline):
    """A deadline that passes when it was asked a number of times."""

    def __init__(self, questions: int) -> None:
        super().__init__()
        self._questions = questions

    @property
    def overrun(self) -> float:
        self._questions -= 1
        return -1.0 - self._questions


def run(model: Served, deadline: Deadline, *requests: Request) -> list[RowOutcome]:
    rows = [row for (row,) in encode(model, *requests)]
    return list(model.engine.task.run(model.engine.model, rows, Meter(), deadline))


def encode(model: Served, *requests: Request) -> Any:
    task = model.engine.task
    return task.encode([task.parse(request) for request in requests])


def test_a_deadline_leaves_the_texts_that_are_finished(tiny_gpt2: Served) -> None:
    parts: list[str] = []
    short = Request("Nina", {"max_new_tokens": 4})
    long = Request("Ada", {"max_new_tokens": 9, "stop": "zz"}, stream=stream_into(parts))
    (alone,) = run(tiny_gpt2, NO_DEADLINE, short)
    finished, slow = run(tiny_gpt2, DeadlineOfQuestions(6), short, long)  # asked once before
    assert isinstance(finished, dict) and isinstance(alone, dict)
    assert finished["texts"] == alone["texts"]
    assert isinstance(slow, DeadlineExceeded)
    assert parts  # so that its stream ends with an error


def test_a_deadline_ends_beams_that_might_become_better(tiny_gpt2: Served) -> None:
    beams = Request("Ada", {"num_beams": 2, "max_new_tokens": 20, "min_new_tokens": 9})
    (outcome,) = run(tiny_gpt2, DeadlineOfQuestions(6), beams)
    assert isinstance(outcome, DeadlineExceeded)


def test_what_the_deadline_leaves_no_time_for_does_not_begin(tiny_gpt2: Served) -> None:
    apart = [Request("Ada", {"no_repeat_ngram_size": size}) for size in range(30, 33)]
    first, *others = run(tiny_gpt2, DeadlineOfQuestions(52), *apart)
    assert isinstance(first, dict)
    assert all(isinstance(each, DeadlineExceeded) for each in others)


def test_the_batch_with_the_fewest_tokens_runs_first(tiny_gpt2: Served) -> None:
    """A large request delays no small one, whatever their order."""
    many = {"do_sample": True, "num_return_sequences": 32, "max_new_tokens": 60, "seed": 1}
    few = {"do_sample": True, "max_new_tokens": 2, "seed": 2}
    large, small = run(
        tiny_gpt2, DeadlineOfQuestions(9), Request("Ada", many), Request("Once upon a time", few)
    )
    assert isinstance(large, DeadlineExceeded) and isinstance(small, dict)


def test_a_prompt_that_fails_costs_no_other_its_text(
    tiny_gpt2: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in its batch nor in one before it, which may have been streamed."""
    model, parts = tiny_gpt2.engine.model, list[str]()
    streamed = Request("Ada", {"max_new_tokens": 3}, stream=stream_into(parts))
    beside, broken = (Request(text, {"max_new_tokens": 9, "num_beams": 2}) for text in "ab")
    expected = tiny_gpt2.engine.predict([streamed, beside])
    ((row,),) = encode(tiny_gpt2, broken)
    generate = model.generate

    def fail(batch: Any, *arguments: Any, **options: Any) -> torch.Tensor:
        if row.features["input_ids"][-1] in batch["input_ids"][:, -1]:
            raise RuntimeError
        return generate(batch, *arguments, **options)

    monkeypatch.setattr(model, "generate", fail)
    streamed = replace(streamed, stream=stream_into(parts))
    *found, error = tiny_gpt2.engine.predict([streamed, beside, broken])
    assert found == expected
    assert isinstance(error, InternalError)


LOOKED_UP = "Nina sings and Tom sings. Nina sings and Tom sings. Nina"


@pytest.mark.parametrize("family", ["GPT2", "Llama"])
def test_prompt_lookup_changes_the_work_and_not_the_text(
    served: Callable[..., Served], family: str
) -> None:
    model = served(MODE, family=family)
    stop = model.ask(LOOKED_UP, max_new_tokens=24, return_full_text=False)[0]["generated_text"][
        9:11
    ]
    for given in ({}, {"stop": [stop]}, {"stop": ["never in it"]}, {"frequency_penalty": 0.5}):
        settings = {"max_new_tokens": 24, "details": True, "logprobs": False, **given}
        for text in (LOOKED_UP, "Ada", "北京 是"):
            plain = model.ask(text, **settings)
            assert model.ask(text, prompt_lookup_num_tokens=5, **settings) == plain


def test_looked_up_tokens_are_computed_together(
    tiny_gpt2: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = getattr(tiny_gpt2.engine.model, "module")  # noqa: B009
    (letter,) = tiny_gpt2.engine.task.checkpoint.tokenizer("a")["input_ids"]
    forward, calls = module.forward, list[int]()

    def count(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return forward(*arguments, **options)

    monkeypatch.setattr(module, "forward", count)
    repeating = {"max_new_tokens": 24, "logit_bias": {str(letter): 100}}
    answer = tiny_gpt2.ask("aaaaaaaa", prompt_lookup_num_tokens=5, **repeating)
    assert answer == [{"generated_text": "a" * 32}]
    assert len(calls) <= 5


def test_what_a_lookup_leaves_no_positions_for_is_not_looked_up(tiny_gpt2: Served) -> None:
    few = {"max_new_tokens": 8, "return_full_text": False}
    plain = tiny_gpt2.ask("a" * 120, **few)
    assert tiny_gpt2.ask("a" * 120, prompt_lookup_num_tokens=5, **few) == plain


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"num_beams": 2}, ["prompt_lookup_num_tokens", "num_beams", "2"]),
        (
            {"num_return_sequences": 2, "do_sample": True},
            ["prompt_lookup_num_tokens", "num_return_sequences", "2"],
        ),
        ({"logprobs": True}, ["logprobs", "prompt_lookup_num_tokens"]),
    ],
)
def test_a_lookup_has_one_sequence_and_no_log_probabilities(
    tiny_gpt2: Served, given: dict[str, Any], facts: list[str]
) -> None:
    status, found = tiny_gpt2.refuse("Ada", prompt_lookup_num_tokens=5, **given)
    assert (status, found) == (422, Sentence(*facts))


def test_a_model_whose_cache_forgets_refuses_a_lookup_and_no_other_prompt(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path, "text_generation", family="GPT2", sliding_window=4)
    model = Served(folder, "text_generation")
    few = {"max_new_tokens": 4}
    lookup = {"inputs": "Ada", "parameters": {**few, "prompt_lookup_num_tokens": 5}}
    refused, (status, _) = model.post(lookup, {"inputs": "Ada", "parameters": few})
    assert (refused[0], status) == (422, 200)
    assert refused[1]["message"] == Sentence("prompt_lookup_num_tokens")
