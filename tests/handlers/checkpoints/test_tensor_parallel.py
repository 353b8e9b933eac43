from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Config, LlamaConfig

from handlers.checkpoints.tensor_parallel import check_tensor_parallel
from handlers.config.model_config import ModelConfig
from handlers.engine import Engine
from handlers.errors import ConfigError, WrongConfig
from scripts.paths import ROOT
from tests.sentences import refused

TWO: dict[str, Any] = {"parallelType": "tp", "torchrun": {"nproc-per-node": 2}}
DRAWS = """
import torch
from torch import distributed
from handlers.process.ranks import seeded

distributed.init_process_group("gloo")
with seeded(None):
    draw = torch.rand(3)
every = [torch.empty(3) for _ in range(2)]
distributed.all_gather(every, draw)
assert torch.equal(*every), every
with seeded(None):
    assert not torch.equal(torch.rand(3), draw)
# Left open, gloo's threads may outlive the interpreter, which aborts then.
distributed.barrier()
distributed.destroy_process_group()
"""


def settings(**keys: Any) -> dict[str, Any]:
    return {**keys, "handler": {"mode": "text_generation", **keys.pop("handler", {})}}


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    (
        settings(torchrun={"nproc-per-node": 2}),
        ["parallelType: tp", "torchrun"],
    ),
    (settings(parallelType="tp"), ["parallelType", "tp", "torchrun"]),
    (settings(parallelType="pp"), ["parallelType", "pp"]),
    (
        settings(parallelType="tp", torchrun={"nproc_per_node": 2}),
        ["torchrun.nproc_per_node", "nproc-per-node"],
    ),
    (
        settings(parallelType="tp", torchrun={"nproc-per-node": "2"}),
        ["torchrun.nproc-per-node", "'2'"],
    ),
    (
        settings(parallelType="tp", torchrun={"nnodes": 2, "rdzv-endpoint": "10.0.0.1:29400"}),
        ["torchrun.nnodes", "2", "rdzv-backend: static", "rdzv-endpoint"],
    ),
    (
        settings(**TWO, handler={"device_map": "auto"}),
        ["handler.device_map", "torchrun"],
    ),
]


@pytest.mark.parametrize(("document", "facts"), WRONG)
def test_torchrun_and_tp_require_each_other(document: dict[str, Any], facts: list[str]) -> None:
    with refused(WrongConfig, "a.yaml", *facts):
        ModelConfig.parse(document, "a.yaml")


def test_a_model_without_a_plan_is_refused(checkpoint: Callable[..., Path]) -> None:
    config = ModelConfig.parse(settings(**TWO))
    with refused(ConfigError, "parallelType", "tp", "gpt2", "handler.device_map"):
        Engine.load(checkpoint("text_generation"), config)


def test_heads_that_cannot_be_divided_are_refused() -> None:
    llama = LlamaConfig(num_attention_heads=8, num_key_value_heads=2)
    check_tensor_parallel(llama, 2)
    with refused(WrongConfig, 4, "num_key_value_heads", 2):
        check_tensor_parallel(llama, 4)
    with refused(WrongConfig, "gpt2"):
        check_tensor_parallel(GPT2Config(), 2)


def test_without_torchrun_the_whole_model_loads(checkpoint: Callable[..., Path]) -> None:
    config = ModelConfig.parse(settings(**TWO))
    engine = Engine.load(checkpoint("text_generation", family="Llama"), config)
    model: Any = engine.model
    assert model.module.model.layers[0].self_attn.q_proj.weight.shape == (32, 32)


@pytest.mark.nightly
def test_processes_draw_the_same_numbers_and_new_ones_each_time(tmp_path: Path) -> None:
    script = tmp_path / "draws.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{DRAWS}", encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run([*torchrun, "--nproc-per-node", "2", str(script)], check=True, timeout=120)
