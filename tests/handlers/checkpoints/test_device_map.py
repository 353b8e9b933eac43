from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from handlers.checkpoints.device_map import device_map_arguments
from handlers.config.handler_section import HandlerSection
from handlers.errors import ConfigError, WrongConfig
from tests.sentences import refused
from tests.serving import Served, explanation_of

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
    with caplog.at_level(logging.INFO, "handlers.checkpoints.placement"):
        Served(checkpoint(MODE), MODE, device_map=GPT2)
    assert (
        "Layers are spread: cpu has transformer.wte, transformer.wpe, transformer.h.0, lm_head; "
        "disk has transformer.h.1, transformer.ln_f" in caplog.messages
    )


def test_transformers_can_choose_the_devices(checkpoint: Checkpoint, caplog: Any) -> None:
    folder = checkpoint(MODE)
    with caplog.at_level(logging.INFO, "handlers.checkpoints.placement"):
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
