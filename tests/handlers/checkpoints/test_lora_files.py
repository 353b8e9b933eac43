from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hf_serve.handlers.checkpoints.lora_files import LoraFiles, adapter_folder
from hf_serve.handlers.config.messages import quote
from hf_serve.handlers.errors import WrongCheckpoint
from tests.sentences import refused

SETTINGS = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.1,
    "target_modules": ["q_proj"],
    "base_model_name_or_path": "org/base",
    "bias": "none",
    "init_lora_weights": True,
    "megatron_core": "megatron.core",
}
MODULE = "model.layers.0.self_attn.q_proj"


def write(folder: Path, tensors: list[str] | None = None, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({**SETTINGS, **settings}))
    names = [f"base_model.model.{MODULE}.lora_{part}.weight" for part in "AB"]
    weights = {name: np.zeros((4, 4), np.float32) for name in tensors or names}
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def test_an_adapter_has_its_settings_and_the_modules_that_it_changes(tmp_path: Path) -> None:
    files = LoraFiles.read(write(tmp_path, rank_pattern={"q_proj": 2}, use_rslora=True))
    assert (files.settings.r, files.settings.lora_alpha, files.settings.use_rslora) == (4, 8, True)
    assert files.modules == {MODULE}


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"peft_type": "IA3"}, ["peft_type", "IA3", "LORA"]),
        ({"task_type": "SEQ_2_SEQ_LM"}, ["task_type", "SEQ_2_SEQ_LM", "SEQ_CLS"]),
        ({"r": 513}, ["r", 513, 512]),
        ({"r": 0}, ["r", 0]),
        ({"lora_alpha": 1e999}, ["lora_alpha", "inf"]),
        ({"rank_pattern": {"(a+)+$": 2}}, ["rank_pattern"]),
        ({"rank_pattern": {"a": 10**6}}, ["rank_pattern.a", 1_000_000]),
        ({"use_dora": True}, ["use_dora"]),
        ({"modules_to_save": ["(a+)+$"]}, ["modules_to_save"]),
        ({"bias": "all"}, ["bias"]),
        ({"layer_replication": [[0, 2]]}, ["layer_replication"]),
        ({"a_new_method": {"x": 1}}, ["a_new_method"]),
        (
            {"init_lora_weights": "pissa"},
            ["init_lora_weights", "pissa"],
        ),
    ],
)
def test_settings_that_would_compute_something_else_are_refused(
    tmp_path: Path, settings: Any, facts: list[object]
) -> None:
    with refused(WrongCheckpoint, *facts):
        LoraFiles.read(write(tmp_path, **settings))


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (write(tmp_path) / "adapter_config.json").write_text("[" * 5_000)
    with refused(WrongCheckpoint, "adapter_config.json"):
        LoraFiles.read(tmp_path)


def test_settings_of_over_1_mb_are_not_read(tmp_path: Path) -> None:
    with refused(WrongCheckpoint, "adapter_config.json", "1 MB"):
        LoraFiles.read(write(tmp_path, revision="a" * 1_000_000))


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.lm_head.weight",
        "base_model.model.embed.lora_embedding_A",
        "base_model.model.x.lora_magnitude_vector",
        "x.lora_A.weight",
    ],
)
def test_tensors_other_than_those_of_linear_layers_are_refused(tmp_path: Path, name: str) -> None:
    with refused(WrongCheckpoint, quote(name)):
        LoraFiles.read(write(tmp_path, [name]))


def test_weights_that_are_cut_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path) / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with refused(WrongCheckpoint, "adapter_model.safetensors"):
        LoraFiles.read(tmp_path)


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    path = write(tmp_path) / "adapter_model.safetensors"
    path.rename(tmp_path / "adapter_model.bin")
    with refused(WrongCheckpoint, "adapter_model.bin"):
        LoraFiles.read(tmp_path)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write(tmp_path) / name).unlink()
    with refused(WrongCheckpoint, name):
        LoraFiles.read(tmp_path)


def test_the_files_beside_the_checkpoint_come_before_a_local_folder(tmp_path: Path) -> None:
    local, beside = write(tmp_path / "local"), tmp_path / "base" / "adapters" / "french"
    assert adapter_folder(tmp_path / "base", "french", str(local)) == local
    assert adapter_folder(tmp_path / "base", "french", "org/name") == beside
    beside.mkdir(parents=True)
    assert adapter_folder(tmp_path / "base", "french", str(local)) == beside
    with refused(WrongCheckpoint):
        LoraFiles.read(tmp_path / "nowhere")
