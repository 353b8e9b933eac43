"""transformers' continuous batching: the texts of `generate`, from their own start to their end."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Encoding

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import DeadlineExceeded, EngineFailed, InternalError, Overloaded
from hf_serve.handlers.formats.pretrained import PretrainedModel
from hf_serve.handlers.generation.backends.prefixes import MIN_TOKENS
from hf_serve.handlers.generation.backends.transformers_paged import BLOCK, PagedModel
from hf_serve.handlers.generation.batch_scheduler import BatchScheduler
from hf_serve.handlers.generation.generator import Prompt
from hf_serve.handlers.generation.parameters import GenerationParameters
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.types.request import Request, TextStream
from tests import tiny
from tests.continuous import LONG, held, predict, wait_for_texts
from tests.serving import SequenceStream, stream_into

MODE = "text_generation"


def load(folder: Path, *, continuous: bool = True, **handler: Any) -> Engine:
    section = {"mode": MODE, "dtype": "float32", **handler}
    document = {"continuousBatching": continuous, "handler": section}
    return Engine.load(folder, ModelConfig.parse(document))


@pytest.fixture(scope="module", params=[pytest.param("GPT2", marks=pytest.mark.nightly), "Llama"])
def folder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("tiny"), MODE, family=request.param)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Engine:
    return load(folder, continuous=False)


def test_texts_are_those_of_each_request_alone(engine: Engine, reference: Engine) -> None:
    assert isinstance(engine.model, PagedModel)
    requests = [
        Request(
            f"Once upon {count} foxes",
            {"max_new_tokens": count, "stop": ["e"] * (count % 3), "logprobs": False},
        )
        for count in range(1, 31)
    ]
    expected = [predict(reference, request) for request in requests]
    with ThreadPoolExecutor(len(requests)) as threads:
        assert list(threads.map(lambda request: predict(engine, request), requests)) == expected
    load = engine.load_metrics
    assert load == {"running_texts": 0, "waiting_texts": 0, "cache_usage": 0}


@pytest.mark.parametrize("cached", [False, True])
def test_texts_that_begin_alike_are_those_of_each_alone(
    folder: Path, reference: Engine, *, cached: bool
) -> None:
    """They come twice, so that the cache of the first serves the second, in steps of 64 tokens."""
    engine: Any = load(folder, enable_prefix_caching=cached, max_num_batched_tokens=64)
    beginning = (
        "Once upon a time there were foxes in the woods, and a bear in the house by the sea. "
    )
    prompts = [f"{beginning[: 9 * count]} So {count}" for count in range(1, 9)]
    tokenizer = reference.task.checkpoint.tokenizer
    # Prompts of whole blocks, which are in the cache as a whole.
    tokens = tokenizer(beginning)["input_ids"]
    prompts += [tokenizer.decode(tokens[: BLOCK * count]) for count in (1, 2)]
    assert len(tokenizer(prompts[-1])["input_ids"]) == 2 * BLOCK
    requests = [Request(prompt, {"max_new_tokens": 24}) for prompt in prompts * 2]
    expected = [predict(reference, request) for request in requests]
    with ThreadPoolExecutor(len(requests)) as threads:
        for _ in range(2):
            assert list(threads.map(lambda each: predict(engine, each), requests)) == expected
    cache = engine.model._scheduler._manager.batch_processor.cache
    # Newer versions do not count the shared tokens.
    shared = getattr(cache, "_total_prefix_length", None)
    assert shared is None or (shared > 0) == cached


def test_a_prompt_waits_for_the_cache_of_its_beginning(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that begins in another way starts at once, although it came later."""
    engine: Any = load(folder, enable_prefix_caching=True)
    scheduler, started = engine.model._scheduler, list[list[int]]()
    monkeypatch.setattr(
        scheduler._manager, "add_request", lambda ids, *_, **__: started.append(list(ids))
    )
    long = list(range(5, 5 + 2 * MIN_TOKENS))
    ids = [[*long, 1], [*long, 2], [9, *long]]
    for each in ids:
        prompt = Prompt({"input_ids": each}, Encoding(), GenerationParameters(), 4)
        scheduler.start(prompt, lambda _: None)
    assert started == [ids[0], ids[2]]
    scheduler._pass_on(_output(next(iter(scheduler._running))))
    assert started == [ids[0], ids[2], ids[1]]


@pytest.mark.parametrize(("device", "expected"), [("cpu", True), ("cuda:0", True), ("xpu", False)])
def test_the_manager_runs_on_cpus_and_nvidia_gpus(
    reference: Engine, monkeypatch: pytest.MonkeyPatch, device: str, expected: bool
) -> None:
    model = reference.model
    assert isinstance(model, PretrainedModel)
    monkeypatch.setattr(type(model.module), "device", torch.device(device))
    again = PretrainedModel(model.module, ("logits",))
    assert again.capabilities.supports_paging == expected


def test_a_stream_has_the_whole_text(engine: Engine, reference: Engine) -> None:
    parts: list[str] = []
    parameters = {"max_new_tokens": 24, "return_full_text": False}
    (text,) = predict(engine, Request("Once", parameters, stream=stream_into(parts)))
    assert [text] == predict(reference, Request("Once", parameters))
    assert len(parts) > 1
    assert text["generated_text"].startswith("".join(parts))


@pytest.mark.parametrize("parameters", [{"do_sample": True, "seed": 4}, {"do_sample": True}])
def test_the_texts_of_one_prompt_are_sent_side_by_side(
    engine: Engine, parameters: dict[str, Any]
) -> None:
    parts: list[tuple[int, str]] = []
    asked = {**parameters, "num_return_sequences": 3, "max_new_tokens": 12}
    request = Request("Once upon", {**asked, "return_full_text": False})
    found: Any = predict(engine, replace(request, stream=SequenceStream(parts, 3)))
    numbers = [number for number, _ in parts]
    assert numbers != sorted(numbers)
    for number, text in enumerate(found):
        own = "".join(new for other, new in parts if other == number)
        assert own and text["generated_text"].startswith(own)
    if "seed" in parameters:
        assert found == predict(engine, request)


@pytest.mark.parametrize(
    "parameters",
    [
        {"do_sample": True, "seed": 4},
        {"repetition_penalty": 1.4},
        {"min_new_tokens": 9},
        {"logit_bias": {"7": 20}},
        {"num_beams": 2},
        {"details": True},
        {"details": True, "decoder_input_details": True},
    ],
)
def test_what_the_manager_cannot_do_runs_in_a_static_group(
    engine: Engine, reference: Engine, parameters: dict[str, Any]
) -> None:
    request = Request("Once upon", {"max_new_tokens": 9, **parameters})
    with held(engine):  # All models of a process draw from one generator.
        expected = predict(reference, request)
    assert predict(engine, request) == expected
    assert not engine.model._is_greedy(_prompt(engine, request))  # type: ignore[attr-defined]


def test_a_generation_config_with_penalties_runs_in_static_groups(folder: Path) -> None:
    engine = load(folder)
    engine.task.generation_config.repetition_penalty = 1.4  # type: ignore[attr-defined]
    assert not engine.model._is_greedy(_prompt(engine, Request("Once", {})))  # type: ignore[attr-defined]


def test_a_greedy_text_does_not_wait_for_the_running_group(engine: Engine) -> None:
    with held(engine):
        assert predict(engine, Request("Once", {"max_new_tokens": 3}))


def test_texts_wait_for_space_in_the_cache_in_their_order(folder: Path, reference: Engine) -> None:
    small = load(folder, cache_size=0.0000164)  # one block of 32 tokens
    requests = [Request("Once", {"max_new_tokens": 20 + count}) for count in range(6)]
    with ThreadPoolExecutor(len(requests)) as threads:
        found = list(threads.map(lambda request: predict(small, request), requests))
    assert found == [predict(reference, request) for request in requests]


def test_a_text_that_does_not_fit_in_the_cache_runs_in_a_static_group(
    folder: Path, reference: Engine
) -> None:
    request = Request("Once", {"max_new_tokens": 60})
    assert predict(load(folder, cache_size=0.0000164), request) == predict(reference, request)


def test_the_limit_holds_for_greedy_and_other_texts_together(folder: Path) -> None:
    engine = load(folder, max_num_seqs=1, max_waiting=0)
    greedy, sampled = (Request("Once", {"do_sample": sampled}) for sampled in (False, True))
    with ThreadPoolExecutor(1) as threads, held(engine):
        waiting = threads.submit(predict, engine, sampled)
        wait_for_texts(engine, 1)
        outcomes = [predict(engine, request) for request in (greedy, sampled)]
    assert [type(outcome) for outcome in outcomes] == [Overloaded] * 2
    assert waiting.result()[0]["generated_text"]


def test_a_text_that_nobody_waits_for_leaves(engine: Engine) -> None:
    deadline, parts = Deadline(), list[str]()

    def hang_up(text: str, _: Any) -> None:
        parts.append(text)
        deadline.expire()

    request = Request("Once upon", {"max_new_tokens": 100}, stream=TextStream(hang_up))
    assert isinstance(predict(engine, request, deadline), DeadlineExceeded)
    assert engine.load_metrics["running_texts"] == 0
    assert len(parts) == 1


def test_an_explanation_uses_the_other_module(engine: Engine, reference: Engine) -> None:
    request = Request("Once upon", {"max_new_tokens": 2})
    assert engine.explain([request]) == reference.explain([request])
    assert predict(engine, request) == predict(reference, request)


def test_the_end_of_the_manager_fails_its_texts_and_later_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = load(folder)
    manager = engine.model._scheduler._manager
    monkeypatch.setattr(manager.batch_processor, "_generation_step", None)
    outcomes = [predict(engine, Request("Once", {})) for _ in range(2)]
    assert [type(outcome) for outcome in outcomes] == [EngineFailed] * 2
    assert engine.device_failed


def test_an_error_of_one_text_leaves_the_others_and_the_manager(
    engine: Any, reference: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = engine.model._scheduler._manager
    add = manager.batch_processor.scheduler.add_waiting_request

    def fail_at_three_tokens(state: Any) -> None:
        if state.max_new_tokens == 3:
            raise RuntimeError("no text of a request")
        add(state)

    monkeypatch.setattr(
        manager.batch_processor.scheduler, "add_waiting_request", fail_at_three_tokens
    )
    failing, other = (Request("Once", {"max_new_tokens": count}) for count in (3, 5))
    assert isinstance(predict(engine, failing), InternalError)
    assert predict(engine, other) == predict(reference, other)
    assert not engine.device_failed


def test_a_model_that_the_manager_runs_differently_has_static_groups(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PagedModel, "agrees", lambda *_: False)
    assert type(load(folder).model) is BatchScheduler


def test_the_threads_end_with_the_model(folder: Path) -> None:
    before = set(threading.enumerate())
    engine = load(folder)
    assert predict(engine, Request("Once", {"max_new_tokens": 2}))
    del engine
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)
        assert not thread.is_alive()


def _output(number: str) -> Any:
    """Return the first token of a text, as the manager sends it."""
    return SimpleNamespace(
        request_id=number, generated_tokens=[7], error=None, is_finished=lambda: False
    )


def _prompt(engine: Engine, request: Request) -> Any:
    task = engine.task
    (rows,) = task.encode([task.parse(request)])
    assert isinstance(rows, list)
    return rows[0]
