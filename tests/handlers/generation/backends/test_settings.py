"""The size of the key-value cache of an engine that runs many texts at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.checkpoints.model_spec import ModelSpec
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.generation.backends import base
from hf_serve.handlers.generation.backends.base import bytes_per_token, cache_bytes
from hf_serve.handlers.types.model_info import ModelOutputs

MODE = "text_generation"
FREE = 1_000_000
GPU = torch.device("cuda:0")


@pytest.fixture
def spec(checkpoint: Callable[..., Path]) -> Callable[..., ModelSpec]:
    """The specification of a tiny model: `spec(workers=2, cache_size=1)`."""

    def make(workers: int = 1, **handler: Any) -> ModelSpec:
        folder = checkpoint(MODE)
        config = ModelConfig.parse(
            {
                "minWorkers": 1,
                "maxWorkers": workers,
                "continuousBatching": True,
                "handler": {"mode": MODE, **handler},
            }
        )
        read = Checkpoint.read(folder, config.handler)
        return ModelSpec(
            folder, read, "AutoModelForCausalLM", ModelOutputs(("logits",)), config, GPU
        )

    return make


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with little memory and two GPUs, each with twice as much free."""
    monkeypatch.setattr(base, "memory_limit", lambda: FREE)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (2 * FREE, 9 * FREE))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize(
    ("device", "workers", "share"),
    [("cpu", 1, 4), ("cpu", 2, 8), ("cuda:0", 1, 2), ("cuda:1", 2, 2), ("cuda:0", 3, 4)],
)
def test_the_cache_has_a_share_of_the_memory_of_its_device(
    spec: Callable[..., ModelSpec], device: str, workers: int, share: int
) -> None:
    found = cache_bytes(spec(workers), 4, 16, torch.device(device))
    assert found == FREE // share


def test_it_is_no_larger_than_the_texts_that_run_at_once_need(
    spec: Callable[..., ModelSpec],
) -> None:
    made = spec(max_num_seqs=1, max_total_tokens=20)
    token = bytes_per_token(made.checkpoint.config, 4)
    assert cache_bytes(made, 4, 16) == 2 * 16 * token


def test_the_yaml_takes_precedence(spec: Callable[..., ModelSpec]) -> None:
    assert cache_bytes(spec(cache_size=3), 4, 16) == 3 * 10**9
