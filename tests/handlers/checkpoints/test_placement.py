from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, LlamaConfig

from hf_serve.handlers.checkpoints.placement import (
    check_tensor_parallel,
    device_map_arguments,
    pick_device,
    prepare_device,
    serving_device_type,
)
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import ConfigError, WrongConfig
from hf_serve.scripts.installation import ROOT
from tests.sentences import refused
from tests.serving import Served, explanation_of


@pytest.mark.parametrize(
    ("gpu", "cuda", "device"),
    [(None, True, "cpu"), (1, True, "cuda:1"), (0, False, "cpu")],
)
def test_a_gpu_is_used_only_if_the_frontend_assigns_one(
    monkeypatch: Any, gpu: int | None, cuda: bool, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device({"gpu_id": gpu}) == torch.device(device)


@pytest.mark.parametrize(
    ("device_type", "cuda", "found"),
    [
        (None, True, "cuda"),
        (None, False, "cpu"),
        ("cpu", True, "cpu"),
        ("gpu", True, "cuda"),
        ("gpu", False, "cuda"),
    ],
)
def test_workers_have_gpus_where_there_are_some_unless_the_yaml_says_cpu(
    monkeypatch: Any, device_type: str | None, cuda: bool, found: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert serving_device_type(device_type) == found


@pytest.fixture
def backends() -> Iterator[None]:
    """Restore what the test sets for all models of this process."""
    attention, convolutions = torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cudnn
    allowed = convolutions.allow_tf32
    yield
    torch.backends.cuda.enable_cudnn_sdp(attention)
    convolutions.allow_tf32 = allowed


@pytest.mark.usefixtures("backends")
@pytest.mark.parametrize(("device", "default"), [("cuda:1", False), ("cpu", True), ("mps", True)])
def test_nvidia_gpus_have_attention_without_plans_and_convolutions_in_float32(
    device: str, default: bool
) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    torch.backends.cudnn.allow_tf32 = True
    prepare_device(torch.device(device))
    assert torch.backends.cuda.cudnn_sdp_enabled() == default
    assert torch.backends.cudnn.allow_tf32 == default


MODE = "text_generation"
PROMPTS = ("Once upon a time", "The weather is nice today, it is a beautiful day")
GPT2 = {
    "transformer.wte": "cpu",
    "transformer.wpe": "cpu",
    "transformer.h.0": "cpu",
    "transformer.h.1": "disk",
    "transformer.ln_f": "disk",
    "lm_head": "cpu",
}
LLAMA = {
    "model.embed_tokens": "cpu",
    "model.layers.0": "disk",
    "model.layers.1": "cpu",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "lm_head": "disk",
}
BERT = {
    "bert.embeddings": "cpu",
    "bert.encoder.layer.0": "disk",
    "bert.encoder.layer.1": "cpu",
    "bert.pooler": "disk",
    "classifier": "cpu",
}

Checkpoint = Callable[..., Path]


def module_of(served: Served) -> torch.nn.Module:
    model: Any = served.engine.model
    module: torch.nn.Module = model.module
    return module


@pytest.mark.parametrize(
    ("family", "places", "on_disk"),
    [("GPT2", GPT2, "transformer.h.1"), ("Llama", LLAMA, "model.layers.0")],
)
def test_layers_on_disk_generate_the_same_text(
    checkpoint: Checkpoint, family: str, places: dict[str, str], on_disk: str
) -> None:
    folder = checkpoint(MODE, family=family)
    whole, spread_out = Served(folder, MODE), Served(folder, MODE, device_map=places)
    layer = module_of(spread_out).get_submodule(on_disk)
    assert all(weight.is_meta for weight in layer.parameters())
    drawn = {"do_sample": True, "seed": 3}
    for prompt in PROMPTS:
        for settings in ({}, drawn):
            parameters = {"max_new_tokens": 12, **settings}
            assert spread_out.ask(prompt, **parameters) == whole.ask(prompt, **parameters)


def test_layers_on_disk_give_the_same_labels_and_explanations(
    checkpoint: Checkpoint,
) -> None:
    folder = checkpoint("sequence_classification")
    whole = Served(folder, "sequence_classification")
    spread_out = Served(folder, "sequence_classification", device_map=BERT)
    texts = ["Ada lives in Paris", "A dull film"]
    assert spread_out.ask(texts) == whole.ask(texts)
    http_requests = [explanation_of({"inputs": text}) for text in texts]
    assert spread_out.post(*http_requests) == whole.post(*http_requests)


def test_the_device_of_each_layer_is_logged(checkpoint: Checkpoint, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "hf_serve.handlers.checkpoints.placement"):
        Served(checkpoint(MODE), MODE, device_map=GPT2)
    assert (
        "Layers are spread: cpu has transformer.wte, transformer.wpe, transformer.h.0, lm_head; "
        "disk has transformer.h.1, transformer.ln_f" in caplog.messages
    )


def test_transformers_can_choose_the_devices(checkpoint: Checkpoint, caplog: Any) -> None:
    folder = checkpoint(MODE)
    with caplog.at_level(logging.INFO, "hf_serve.handlers.checkpoints.placement"):
        chosen = Served(folder, MODE, device_map="auto")
    assert "Layers are spread: " in caplog.text
    assert chosen.ask(PROMPTS[0]) == Served(folder, MODE).ask(PROMPTS[0])


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"device_map": GPT2, "model_parallel": False},
        ["device_map", "model_parallel: false"],
    ),
    (
        {"device_map": GPT2, "save_mode": "onnx"},
        ["device_map", "save_mode: onnx", "save_mode: pretrained"],
    ),
    ({"device_map": {"": "disk"}}, ["device_map", "disk"]),
    (
        {"device_map": {**GPT2, "lm_head": 9}},
        ["handler.device_map", "9"],
    ),
    ({"device_map": {**GPT2, "lm_head": "gpu"}}, ["handler.device_map", "gpu"]),
    (
        {"device_map": {name: place for name, place in GPT2.items() if name != "lm_head"}},
        ["handler.device_map"],
    ),
    (
        {"device_map": {**GPT2, "lm_head": "disk"}},
        ["handler.device_map", "disk"],
    ),
]


@pytest.mark.parametrize(("settings", "facts"), WRONG)
def test_an_impossible_device_map_stops_the_load(
    checkpoint: Checkpoint, settings: dict[str, Any], facts: list[str]
) -> None:
    with refused(ConfigError, *facts):
        Served(checkpoint(MODE), MODE, **settings)


def test_one_device_is_not_enough_for_model_parallel(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    with refused(WrongConfig, "handler.model_parallel", 1, "handler.device_map"):
        device_map_arguments(HandlerSection(mode=MODE, model_parallel=True), tmp_path)


def test_offloaded_layers_are_stored_in_the_unpacked_archive(
    monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    handler = HandlerSection(mode=MODE, model_parallel=True)
    beside_a_checkpoint = device_map_arguments(handler, tmp_path)
    (tmp_path / "MAR-INF").mkdir()
    unpacked = device_map_arguments(handler, tmp_path)
    assert beside_a_checkpoint["device_map"] == unpacked["device_map"] == "balanced"
    assert beside_a_checkpoint["offload_folder"].parent != tmp_path
    assert unpacked["offload_folder"].parent == tmp_path


TWO: dict[str, Any] = {"parallelType": "tp", "torchrun": {"nproc-per-node": 2}}
DRAWS = """
import torch
from torch import distributed
from hf_serve.handlers.process.ranks import seeded

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


WRONG_TORCHRUN: list[tuple[dict[str, Any], list[str]]] = [
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


@pytest.mark.parametrize(("document", "facts"), WRONG_TORCHRUN)
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
