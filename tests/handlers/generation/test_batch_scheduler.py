"""Batches of `generate` for requests that come at any time: the texts of each alone."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import (
    DeadlineExceeded,
    Overloaded,
    RequestTooLarge,
    Unprocessable,
    WrongConfig,
)
from hf_serve.handlers.generation.batch_scheduler import BatchScheduler
from hf_serve.handlers.generation.generator import Generator
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.types.request import Request, TextStream
from tests import tiny
from tests.continuous import LONG, held, predict, wait_for_texts
from tests.modes.image_classification import IMAGES
from tests.modes.image_text_to_text import chat_about
from tests.sentences import refused
from tests.serving import differences, stream_into
from tests.tiny_multimodal import write_llava

MODE = "text_generation"
PROMPTS = ["Once upon a time", "The café in Zürich", "a fox"]
SETTINGS: list[dict[str, Any]] = [
    {"max_new_tokens": 12, "details": True},
    {"max_new_tokens": 1},
    {"max_new_tokens": 20, "stop": ["e"], "details": True},
    {"max_new_tokens": 9, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    {"max_new_tokens": 9, "frequency_penalty": 1.5, "logit_bias": {"7": 20}},
    {"max_new_tokens": 9, "top_n_tokens": 3},
    {"max_new_tokens": 0, "decoder_input_details": True, "details": True},
    {"max_new_tokens": 3, "decoder_input_details": True, "top_n_tokens": 2, "logprobs": True},
    {"max_new_tokens": 9, "num_beams": 3, "num_return_sequences": 2},
    {"max_new_tokens": 9, "do_sample": True, "seed": 4, "typical_p": 0.8},
    {"max_new_tokens": 9, "do_sample": True, "seed": 4, "num_return_sequences": 3},
    {"max_new_tokens": 9, "prompt_lookup_num_tokens": 3},
    {"max_new_tokens": 9, "grammar": {"type": "regex", "value": "[0-9]+"}},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("tiny"), MODE)


def load_static(folder: Path) -> Engine:
    return Engine.load(folder, ModelConfig.parse({"handler": {"mode": MODE, "dtype": "float32"}}))


def load(folder: Path, max_running: int = 64, max_waiting: int = 128) -> Engine:
    engine = load_static(folder)
    engine.model = BatchScheduler(engine.model, max_running, max_waiting)
    return engine


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Engine:
    return load_static(folder)


def test_texts_are_those_of_each_request_alone(engine: Engine, reference: Engine) -> None:
    requests = [Request(prompt, given) for given in SETTINGS for prompt in PROMPTS]
    expected = [predict(reference, request) for request in requests]
    with ThreadPoolExecutor(len(requests)) as threads:
        with held(engine):
            futures = [threads.submit(predict, engine, request) for request in requests]
            wait_for_texts(engine, len(PROMPTS) * (len(SETTINGS) + 2 + 2))
        found = [future.result() for future in futures]
    assert not differences(found, expected, 1e-4)


def test_a_text_leaves_when_it_ends_while_others_of_its_batch_go_on(engine: Engine) -> None:
    short, long = (Request("Once upon", {"max_new_tokens": count}) for count in (31, 60))
    answered = threading.Event()
    parts: list[bool] = []

    def send(*_: Any) -> None:
        """Let the batch go on only after the answer, once the short text has ended."""
        parts.append(len(parts) < 31 or answered.wait(LONG))

    with ThreadPoolExecutor(2) as threads:
        with held(engine):
            streamed = threads.submit(predict, engine, replace(long, stream=TextStream(send)))
            other = threads.submit(predict, engine, short)
            wait_for_texts(engine, 2)
        assert other.result()
        assert not streamed.done()
        answered.set()
        assert streamed.result()
    assert len(parts) > 31
    assert all(parts)


def test_a_text_that_nobody_waits_for_ends(engine: Engine, reference: Engine) -> None:
    deadline, returned = Deadline(), threading.Event()
    parts: list[str] = []

    def hang_up(text: str, _: Any) -> None:
        parts.append(text)
        deadline.expire()
        returned.wait(LONG)

    request = Request("Once upon", {"max_new_tokens": 100}, stream=TextStream(hang_up))
    assert isinstance(predict(engine, request, deadline), DeadlineExceeded)
    returned.set()
    other = Request("Once upon", {"max_new_tokens": 5})
    assert predict(engine, other) == predict(reference, other)
    assert len(parts) == 1
    assert engine.load_metrics == {"running_texts": 0, "waiting_texts": 0}


def test_a_waiting_text_that_nobody_waits_for_does_not_run(engine: Engine) -> None:
    parts: list[str] = []
    request = Request("Once", {}, stream=stream_into(parts))
    with held(engine):
        assert isinstance(predict(engine, request, Deadline(0.0)), DeadlineExceeded)
    assert predict(engine, Request("Once", {"max_new_tokens": 2}))
    assert not parts


def test_prompts_beyond_the_limit_are_refused_and_leave_the_others(folder: Path) -> None:
    engine = load(folder, max_running=2, max_waiting=1)
    sampled = {"do_sample": True, "max_new_tokens": 4}
    with ThreadPoolExecutor(1) as threads, held(engine):
        three = threads.submit(
            predict, engine, Request("Once", {**sampled, "num_return_sequences": 3})
        )
        wait_for_texts(engine, 3)
        assert isinstance(predict(engine, Request("Once", sampled)), Overloaded)
    assert len(three.result()) == 3
    assert predict(engine, Request("Once", sampled))


def test_what_a_request_must_not_ask_for_is_the_error_of_its_text(engine: Engine) -> None:
    wrong = Request("Once", {"num_beams": 2, "grammar": {"type": "regex", "value": "[0-9]+"}})
    outcomes: Any = engine.predict([wrong, Request("Once", {"max_new_tokens": 2})])
    assert isinstance(outcomes[0], Unprocessable)
    assert outcomes[1][0]["generated_text"].startswith("Once")


def test_prompts_that_cannot_be_grouped_run_one_by_one(
    engine: Engine, reference: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Generator.batches

    def batches_of_one(self: Generator, prompts: Any, budget: int) -> Any:
        if len(prompts) > 1:
            raise ValueError("these prompts do not fit each other")
        return batches(self, prompts, budget)

    monkeypatch.setattr(Generator, "batches", batches_of_one)
    requests = [Request(text, {"max_new_tokens": 3}) for text in PROMPTS]
    with ThreadPoolExecutor(len(requests)) as threads:
        with held(engine):
            texts = [threads.submit(predict, engine, request) for request in requests]
            wait_for_texts(engine, len(requests))
        assert [text.result() for text in texts] == [
            predict(reference, request) for request in requests
        ]


def test_an_explanation_waits_for_the_running_batch(engine: Engine, reference: Engine) -> None:
    request = Request("Once upon", {"max_new_tokens": 2})
    with ThreadPoolExecutor(2) as threads:
        with held(engine):
            explained = threads.submit(engine.explain, [request])
            text = threads.submit(predict, engine, request)
            wait_for_texts(engine, 2)
        assert explained.result() == reference.explain([request])
        assert text.result() == predict(reference, request)


def test_what_waits_for_the_running_batch_until_its_deadline_is_not_called(engine: Engine) -> None:
    calls: list[str] = []
    with held(engine), pytest.raises(DeadlineExceeded):
        engine.model.run_exclusively(lambda: calls.append("late"), Deadline(0.01))
    engine.model.run_exclusively(lambda: calls.append("free"), Deadline())
    assert calls == ["free"]


def test_the_thread_ends_with_the_model(folder: Path) -> None:
    before = set(threading.enumerate())
    engine = load(folder)
    assert predict(engine, Request("Once", {"max_new_tokens": 2}))
    (thread,) = set(threading.enumerate()) - before
    del engine
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()


def test_modes_that_do_not_generate_are_refused() -> None:
    document = {"continuousBatching": True, "handler": {"mode": "sequence_classification"}}
    with refused(WrongConfig, "continuousBatching"):
        formats.check_config(ModelConfig.parse(document))


def test_processes_of_torchrun_are_refused() -> None:
    document = {
        "continuousBatching": True,
        "parallelType": "tp",
        "torchrun": {"nproc-per-node": 2},
        "handler": {"mode": MODE},
    }
    with refused(WrongConfig, "torchrun"):
        ModelConfig.parse(document)


def test_a_request_with_more_texts_than_may_wait_is_too_large(folder: Path) -> None:
    """It could never start, so it is not told to come back."""
    engine = load(folder, max_running=2, max_waiting=1)
    several = Request("Ada", {"do_sample": True, "num_return_sequences": 4, "max_new_tokens": 2})
    [outcome] = engine.predict([several])
    assert isinstance(outcome, RequestTooLarge)
    assert "asks for 4 texts, and 3 may run or wait" in str(outcome)


def test_texts_about_images_are_those_of_each_alone(tmp_path: Path) -> None:
    """They share the batches of `generate` with texts without images."""
    mode = "image_text_to_text"
    write_llava(tmp_path, {}, 0)
    alone, together = (
        Engine.load(
            tmp_path,
            ModelConfig.parse({"continuousBatching": continuous, "handler": {"mode": mode}}),
        )
        for continuous in (False, True)
    )
    requests = [
        Request(inputs, {"max_new_tokens": 4 + number})
        for number, inputs in enumerate([*(chat_about(each, "What?") for each in IMAGES), "a fox"])
    ]
    expected = [predict(alone, request) for request in requests]
    assert isinstance(together.model, BatchScheduler)
    with ThreadPoolExecutor(len(requests)) as threads:
        assert list(threads.map(lambda each: predict(together, each), requests)) == expected
