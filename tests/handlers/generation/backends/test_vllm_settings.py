"""What vLLM is told, and which YAMLs it takes; none of it needs vLLM."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_serve.handlers import formats
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.checkpoints.model_spec import ModelSpec
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import Unprocessable, WrongCheckpoint, WrongConfig
from hf_serve.handlers.generation.backends.vllm import (
    _environment,
    engine_arguments,
    sampling_settings,
)
from hf_serve.handlers.generation.parameters import GenerationParameters
from hf_serve.handlers.types.model_info import ModelOutputs
from hf_serve.handlers.types.request import Request
from tests.sentences import refused

MODE = "text_generation"
GREEDY = {"temperature": 0.0}
SAMPLED = {"do_sample": True, "top_k": 5}


def config(**handler: Any) -> ModelConfig:
    keys = {"mode": MODE, "engine": "vllm", **handler}
    return ModelConfig.parse({"continuousBatching": True, "handler": keys})


@pytest.fixture
def spec(checkpoint: Callable[..., Path]) -> Callable[..., ModelSpec]:
    """The specification of a tiny Llama: `spec(device="cuda:1", max_num_seqs=4)`."""

    def make(device: str = "cpu", **handler: Any) -> ModelSpec:
        folder, parsed = checkpoint(MODE, family="Llama"), config(**handler)
        read = Checkpoint.read(folder, parsed.handler)
        return ModelSpec(
            folder,
            read,
            "AutoModelForCausalLM",
            ModelOutputs(("logits",)),
            parsed,
            torch.device(device),
        )

    return make


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, GREEDY),
        # Settings of sampling without sampling have no effect.
        ({"temperature": 0.7, "top_k": 5, "top_p": 0.9, "seed": 4}, GREEDY),
        (SAMPLED, {"top_k": 5}),
        ({"do_sample": True}, {"top_k": 50}),
        (
            {**SAMPLED, "temperature": 0.7, "top_p": 0.9, "min_p": 0.1},
            {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1},
        ),
        ({**SAMPLED, "seed": 4}, {"top_k": 5, "seed": 6}),
        ({**SAMPLED, "seed": 2**64 - 1}, {"top_k": 5, "seed": 3}),
        ({"repetition_penalty": 1.3}, {**GREEDY, "repetition_penalty": 1.3}),
        (
            {"frequency_penalty": 1.5, "presence_penalty": -0.5},
            {**GREEDY, "frequency_penalty": 1.5, "presence_penalty": -0.5},
        ),
        ({"logit_bias": {"5": 2.0}}, {**GREEDY, "logit_bias": {5: 2.0}}),
        ({"min_new_tokens": 3}, {**GREEDY, "min_tokens": 3}),
        ({"details": True}, {**GREEDY, "logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 2}, {**GREEDY, "logprobs": 2}),
        ({"length_penalty": 2.0, "early_stopping": True, "typical_p": 0.5}, GREEDY),
    ],
)
def test_parameters_become_those_of_vllm(
    parameters: dict[str, Any], expected: dict[str, Any]
) -> None:
    read = GenerationParameters.of_request({}, parameters)
    assert sampling_settings({}, read, number=2) == expected


def test_parameters_take_precedence_over_those_of_the_checkpoint() -> None:
    read = GenerationParameters.of_request({}, {"do_sample": True, "top_p": 0.5})
    base = {"do_sample": False, "top_k": 7, "top_p": 0.9}
    assert sampling_settings(base, read, number=0) == {"top_k": 7, "top_p": 0.5}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("typical_p", 0.5),
        ("no_repeat_ngram_size", 2),
        ("num_beams", 2),
        ("prompt_lookup_num_tokens", 3),
        ("bad_words", ["a", "b"]),
        ("decoder_input_details", True),
    ],
)
def test_what_vllm_lacks_is_refused_by_name(name: str, value: Any) -> None:
    read = GenerationParameters.of_request({}, {"do_sample": True, name: value})
    with refused(Unprocessable, name, json.dumps(value), "engine: vllm"):
        sampling_settings({}, read, number=0)


def test_the_yaml_says_how_vllm_loads_a_checkpoint(spec: Callable[..., ModelSpec]) -> None:
    made = spec(max_num_seqs=4, max_total_tokens=100, cache_size=0.001)
    arguments = engine_arguments(made, "bfloat16")
    token = 2 * 2 * 32 * 2  # keys and values of two layers with 32 numbers of two bytes
    expected = {
        "model": str(made.directory),
        "dtype": "bfloat16",
        "max_model_len": 100,
        "max_num_seqs": 4,
        "enable_prefix_caching": True,
        "trust_remote_code": False,
        "kv_cache_memory_bytes": 10**6 + 128 * token,
    }
    assert {name: arguments[name] for name in expected} == expected


def test_the_yaml_says_what_vllm_caches_and_how_it_reads_prompts(
    spec: Callable[..., ModelSpec],
) -> None:
    keys = {
        "enable_prefix_caching": False,
        "enable_chunked_prefill": True,
        "max_num_batched_tokens": 64,
    }
    arguments = engine_arguments(spec(**keys), "bfloat16")
    assert {name: arguments[name] for name in keys} == keys
    assert not keys.keys() - {"enable_prefix_caching"} & engine_arguments(spec(), "float32").keys()


@pytest.mark.parametrize(("end", "reads"), [(0, True), (7, False), ([7, 0], True), (None, False)])
def test_the_tokenizer_is_read_where_its_end_token_ends_texts(
    spec: Callable[..., ModelSpec], end: Any, reads: bool
) -> None:
    made = spec()
    made.checkpoint.tokenizer.eos_token_id = 0
    made.checkpoint.generation_config.eos_token_id = end
    assert engine_arguments(made, "float32")["skip_tokenizer_init"] is not reads


def test_without_a_size_the_cache_holds_the_texts_that_run_at_once(
    spec: Callable[..., ModelSpec],
) -> None:
    token = 2 * 2 * 32 * 4
    arguments = engine_arguments(spec(max_num_seqs=4), "float32")
    assert arguments["kv_cache_memory_bytes"] == (4 + 1) * 128 * token


def test_on_a_gpu_vllm_takes_what_it_finds(
    spec: Callable[..., ModelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "kv_cache_memory_bytes" not in engine_arguments(spec("cuda:1"), "float32")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _environment(torch.device("cuda:1"))["CUDA_VISIBLE_DEVICES"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert _environment(torch.device("cuda:1"))["CUDA_VISIBLE_DEVICES"] == "6"


def test_a_cache_that_is_too_small_for_a_text_stops_the_load(
    spec: Callable[..., ModelSpec],
) -> None:
    with refused(WrongConfig, 128, "max_total_tokens", 78):
        engine_arguments(spec(cache_size=0.00004), "float32")


def test_vllm_is_offline_and_sends_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "0")
    monkeypatch.setenv("PYTHONPATH", "/archive")
    environment = _environment(torch.device("cpu"))
    assert environment["VLLM_NO_USAGE_STATS"] == environment["DO_NOT_TRACK"] == "1"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert "archive" not in environment["PYTHONPATH"]


@pytest.mark.parametrize(
    ("handler", "rest", "facts"),
    [
        ({"save_mode": "openvino"}, {}, ["handler.save_mode", "openvino"]),
        ({"mode": "token_classification"}, {}, ["handler.mode", "token_classification"]),
        ({}, {"continuousBatching": False}, ["continuousBatching"]),
        (
            {"device_map": "auto"},
            {},
            ["handler.device_map"],
        ),
        ({"model_parallel": True}, {}, ["handler.model_parallel"]),
        ({"allow_pickle": True}, {}, ["handler.allow_pickle"]),
        ({}, {"pt2": "inductor"}, ["pt2.compile"]),
        ({"quantization": "int8"}, {}, ["handler.quantization", "int8"]),
        ({"mode": "summarization"}, {}, ["handler.mode", "summarization"]),
    ],
)
def test_a_yaml_that_does_not_fit_is_refused_by_name(
    handler: dict[str, Any], rest: dict[str, Any], facts: list[str]
) -> None:
    keys = {"mode": MODE, "engine": "vllm", **handler}
    with refused(WrongConfig, *facts):
        formats.check_config(
            ModelConfig.parse({"continuousBatching": True, "handler": keys, **rest})
        )


def test_another_python_is_for_an_engine_only() -> None:
    with refused(WrongConfig, "vllm_python", "engine"):
        ModelConfig.parse({"handler": {"mode": MODE, "vllm_python": sys.executable}})


@pytest.mark.parametrize(
    ("handler", "facts"),
    [
        ({}, ["handler.engine", "vllm"]),
        ({"vllm_python": sys.executable}, ["handler.vllm_python", sys.executable]),
        ({"vllm_python": "/no/python"}, ["handler.vllm_python", "/no/python"]),
    ],
)
def test_a_python_without_vllm_stops_the_load(
    checkpoint: Callable[..., Path], handler: dict[str, str], facts: list[str]
) -> None:
    with refused(WrongConfig, *facts):
        Engine.load(checkpoint(MODE, family="Llama"), config(**handler))


def test_a_generation_config_that_vllm_would_ignore_stops_the_load(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    for path in checkpoint(MODE, family="Llama").iterdir():
        (tmp_path / path.name).symlink_to(path)
    content = '{"suppress_tokens": [3]}'
    (tmp_path / "generation_config.json").write_text(content, encoding="utf-8")
    with refused(WrongCheckpoint, "suppress_tokens", "engine: vllm"):
        Engine.load(tmp_path, config())


def test_torch_measures_the_agreement_with_float32(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    settings = config(dtype="bfloat16", min_agreement=0.01)
    samples = [Request("Once upon a time", {"max_new_tokens": 2})]
    report = formats.export(checkpoint(MODE, family="Llama"), settings, tmp_path, samples)
    assert report is not None
    assert report.dtype == "bfloat16"
