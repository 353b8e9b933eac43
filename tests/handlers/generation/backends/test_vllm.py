"""vLLM: the texts of `generate`, for each setting that both have."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import (
    BadRequest,
    DeadlineExceeded,
    EngineFailed,
    RequestError,
    Unprocessable,
    WrongCheckpoint,
)
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.types.request import Request, TextStream
from tests import tiny
from tests.serving import differences
from tests.vllm_python import VLLM_PYTHON
from tests.waiting import wait_for

pytestmark = pytest.mark.vllm

MODE = "text_generation"
PROMPT = "Once upon a time"
# vLLM has kernels for heads of at least 32 numbers.
WIDE: dict[str, Any] = {"family": "Llama", "hidden_size": 64, "num_attention_heads": 2}


def config(**handler: Any) -> ModelConfig:
    keys = {"mode": MODE, "engine": "vllm", "vllm_python": str(VLLM_PYTHON), **handler}
    return ModelConfig.parse({"continuousBatching": True, "handler": keys})


@pytest.fixture(scope="module", autouse=True)
def without_compilation() -> Iterator[None]:
    """Have vLLM compile nothing, as in its own tests, which takes it half a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_CI_ENV", "1")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("vllm"), MODE, **WIDE)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return Engine.load(folder, config(max_num_seqs=8))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Engine:
    return Engine.load(folder, ModelConfig.parse({"handler": {"mode": MODE}}))


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_new_tokens": 12, "details": True},
        {"max_new_tokens": 12, "details": True, "top_n_tokens": 3},
        {"max_new_tokens": 1, "details": True},
        {"max_new_tokens": 40, "stop": ["e"], "details": True},
        {"max_new_tokens": 20, "repetition_penalty": 1.3},
        {"max_new_tokens": 20, "min_new_tokens": 15},
        {"max_new_tokens": 30, "frequency_penalty": 1.5, "presence_penalty": -0.5},
        {"max_new_tokens": 20, "logit_bias": {"5": 3.0, "9": -100}},
        {"max_new_tokens": 8, "do_sample": True, "top_k": 1},
    ],
)
def test_texts_are_those_of_generate(
    engine: Engine, reference: Engine, parameters: dict[str, Any]
) -> None:
    request = Request(PROMPT, parameters)
    found, expected = engine.predict([request]), reference.predict([request])
    assert not differences(found, expected, 1e-4)


def test_texts_side_by_side_are_those_of_generate(engine: Engine, reference: Engine) -> None:
    requests = [
        Request(f"{PROMPT} there were {number} foxes", {"max_new_tokens": 4 + 2 * number})
        for number in range(16)
    ]
    with ThreadPoolExecutor(len(requests)) as threads:
        together = [threads.submit(engine.predict, [request]) for request in requests]
    assert [each.result()[0] for each in together] == reference.predict(requests)


def test_texts_are_those_of_generate_without_a_cache_of_prefixes_and_in_small_steps(
    folder: Path, reference: Engine
) -> None:
    keys = {"enable_prefix_caching": False, "enable_chunked_prefill": True}
    engine = Engine.load(folder, config(**keys, max_num_batched_tokens=16, max_num_seqs=8))
    requests = [Request(f"{PROMPT} " * 4 + str(number)) for number in range(8)]
    with ThreadPoolExecutor(len(requests)) as clients:
        found = list(clients.map(lambda request: engine.predict([request])[0], requests))
    assert found == reference.predict(requests)


def test_sampling_with_a_seed_is_repeatable_and_each_sequence_differs(engine: Engine) -> None:
    parameters = {"do_sample": True, "seed": 3, "num_return_sequences": 3, "max_new_tokens": 12}
    first: Any = engine.predict([Request(PROMPT, parameters)])[0]
    assert engine.predict([Request(PROMPT, parameters)]) == [first]
    assert len({text["generated_text"] for text in first}) == 3


def test_a_stream_has_the_whole_text(engine: Engine, reference: Engine) -> None:
    parts: list[str] = []
    parameters = {"max_new_tokens": 24, "return_full_text": False}
    engine.predict(
        [Request(PROMPT, parameters, stream=TextStream(lambda text, _: parts.append(text)))]
    )
    expected: Any = reference.predict([Request(PROMPT, parameters)])[0]
    assert expected[0]["generated_text"].startswith("".join(parts))
    assert len(parts) > 1


def test_what_vllm_itself_refuses_is_the_error_of_its_text(engine: Engine) -> None:
    hot, usual = ({"do_sample": True, "temperature": each} for each in (3.0, 1.0))
    refused, text = engine.predict([Request(PROMPT, hot), Request(PROMPT, usual)])
    assert isinstance(refused, Unprocessable)
    assert "temperature must be in [0, 2], got 3.0" in str(refused)
    assert not isinstance(text, RequestError)


@pytest.mark.parametrize(
    ("grammar", "settings"),
    [
        ({"type": "regex", "value": "[a-f]{4,9}"}, {}),
        ({"type": "regex", "value": "(fox|bear) (sings|sleeps)"}, {"stop": ["sl"]}),
        (
            {"type": "json", "value": {"type": "object", "properties": {"a": {"const": "fox"}}}},
            {"frequency_penalty": 1.0},
        ),
        ({"type": "json", "value": {"enum": ["fox", 3, None]}}, {"logit_bias": {"5": 2.0}}),
    ],
)
def test_a_text_with_a_grammar_is_that_of_generate(
    engine: Engine, reference: Engine, grammar: dict[str, Any], settings: dict[str, Any]
) -> None:
    # Its log probabilities are those among the tokens that the grammar allows.
    parameters = {"max_new_tokens": 30, "grammar": grammar, "details": True, "logprobs": False}
    request = Request(PROMPT, {**parameters, **settings})
    found, _ = engine.predict([request, Request(PROMPT)])
    assert [found] == reference.predict([request])


def test_a_wrong_grammar_is_the_error_of_its_text(engine: Engine) -> None:
    def grammar(value: str, **others: Any) -> dict[str, Any]:
        return {"grammar": {"type": "regex", "value": value}, "max_new_tokens": 4, **others}

    wrong, tied, text = engine.predict(
        [
            Request(PROMPT, grammar("(")),
            Request(PROMPT, grammar("a+", min_new_tokens=2)),
            Request(PROMPT, grammar("a+")),
        ]
    )
    assert isinstance(wrong, BadRequest)
    assert isinstance(tied, Unprocessable)
    assert str(tied).startswith("min_new_tokens is not supported with response_format, grammar")
    assert not isinstance(text, RequestError)


def test_a_text_out_of_time_ends(engine: Engine) -> None:
    [outcome] = engine.predict([Request(PROMPT, {"max_new_tokens": 100})], deadline=Deadline(0.0))
    assert isinstance(outcome, DeadlineExceeded)
    assert engine.load_metrics["running_texts"] == engine.load_metrics["waiting_texts"] == 0


def test_a_text_is_explained(engine: Engine) -> None:
    explained: Any = engine.explain([Request("Once upon", {"max_new_tokens": 2})])[0]
    assert explained["method"] == "feature_ablation"


def test_without_an_end_token_texts_go_on_and_processes_end_with_the_model(tmp_path: Path) -> None:
    tiny.write(tmp_path, MODE, eos_token_id=None, **WIDE)
    before = set(psutil.Process().children())
    alone = Engine.load(tmp_path, config())
    (process,) = set(psutil.Process().children()) - before
    processes = [process, *process.children(recursive=True)]
    outcome: Any = alone.predict([Request(PROMPT, {"max_new_tokens": 5, "details": True})])[0]
    assert outcome[0]["details"]["generated_tokens"] == 5
    regex = {"grammar": {"type": "regex", "value": "a"}}
    [refused] = alone.predict([Request(PROMPT, regex)])
    assert isinstance(refused, Unprocessable)
    del alone

    def all_end() -> bool:
        # The thread that reads the events may still have the model in a frame.
        gc.collect()
        return not psutil.wait_procs(processes, timeout=1)[1]

    wait_for(all_end)


@pytest.mark.parametrize("inner", [False, True], ids=["its own", "that of its engine core"])
def test_the_end_of_a_process_fails_its_texts_and_ends_the_others(
    folder: Path, *, inner: bool
) -> None:
    before = set(psutil.Process().children())
    engine = Engine.load(folder, config())
    (process,) = set(psutil.Process().children()) - before
    processes = [process, *process.children(recursive=True)]
    core = next(each for each in processes if "EngineCore" in " ".join(each.cmdline()))
    begun = threading.Event()
    stream = TextStream(lambda *_: begun.set())
    threading.Thread(target=_kill_after, args=(begun, core if inner else process)).start()
    running = Request(PROMPT, {"max_new_tokens": 120}, stream=stream)
    engine.predict([running])
    [later] = engine.predict([Request(PROMPT)])
    assert isinstance(later, EngineFailed)
    assert engine.device_failed
    assert not psutil.wait_procs(processes, timeout=60)[1]


def _kill_after(event: threading.Event, process: psutil.Process) -> None:
    event.wait(60)
    os.kill(process.pid, signal.SIGKILL)


def test_a_checkpoint_that_vllm_does_not_load_stops_the_load(tmp_path: Path) -> None:
    tiny.write(tmp_path, MODE, **WIDE)
    (tmp_path / "model.safetensors").write_bytes(b"none")
    with pytest.raises(WrongCheckpoint, match="vLLM does not load it"):
        Engine.load(tmp_path, config())
