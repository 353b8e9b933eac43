"""Names in the files of a checkpoint are those of weights beside them, wherever it comes from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_serve.handlers.checkpoints.checkpoint_files import (
    ModelIndex,
    check_components,
    shard_files,
    weights_file,
)
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import WrongCheckpoint
from tests import tiny
from tests.sentences import refused
from tests.tiny import Traitor

SINGLE, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
MODE = "sequence_classification"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([PICKLE, SINGLE, INDEX], SINGLE),
        ([PICKLE, INDEX], INDEX),
        ([PICKLE], PICKLE),
        (["pytorch_model.bin.index.json"], "pytorch_model.bin.index.json"),
    ],
)
def test_safetensors_are_preferred_over_pickles(names: list[str], chosen: str) -> None:
    assert weights_file(names, "org/name", allow_pickle=True) == chosen


def test_pickles_are_rejected_unless_allowed() -> None:
    with refused(WrongCheckpoint, "pytorch_model.bin", "handler.allow_pickle: true"):
        weights_file([PICKLE], "org/name", allow_pickle=False)


def test_a_repository_without_weights_is_rejected() -> None:
    with refused(WrongCheckpoint):
        weights_file(["adapter_model.safetensors", "model.gguf"], "org/name", allow_pickle=True)


def test_shards_of_an_index_are_listed_once(tmp_path: Path) -> None:
    index = tmp_path / INDEX
    index.write_text(
        '{"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "1.safetensors"}}'
    )
    names = ["1.safetensors", "2.safetensors", "3.safetensors"]
    assert shard_files(index, names, "org/name") == ["1.safetensors", "2.safetensors"]
    assert shard_files(tmp_path / SINGLE, names, "org/name") == []


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            '{"weight_map": {"a": "gone.safetensors"}}',
            ["gone.safetensors"],
        ),
        (
            '{"weight_map": {"a": "sub/1.safetensors"}}',
            ["sub/1.safetensors"],
        ),
        ('{"weight_map": {"a": "../1.safetensors"}}', ["../1.safetensors"]),
        ('{"weight_map": {"a": "modeling.py"}}', ["modeling.py"]),
        ('{"weight_map": {"a": 5}}', [INDEX]),
        ('{"weight_map": {"a": ["1.safetensors"]}}', [INDEX]),
        ('{"weight_map": []}', [INDEX]),
        ('{"weight_map": {}}', [INDEX]),
        ('{"metadata": {}}', [INDEX]),
        ("oops", [INDEX]),
        ("[" * 100_000, [INDEX]),
    ],
)
def test_an_invalid_index_is_rejected(tmp_path: Path, text: str, facts: list[str]) -> None:
    (tmp_path / INDEX).write_text(text)
    with refused(WrongCheckpoint, *facts):
        shard_files(
            tmp_path / INDEX,
            ["1.safetensors", "../1.safetensors", "sub/1.safetensors", "modeling.py"],
            "org/name",
        )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint whose weights are in another file, with a pickle that runs code beside it."""
    folder = tiny.write(tmp_path / "model", MODE)
    torch.save(Traitor(tmp_path / "ran"), folder / "x.bin")
    weights = load_file(folder / SINGLE)
    for name in ("own.safetensors", "../outside.safetensors", "deep/inside.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        save_file(weights, folder / name, {"format": "pt"})
    (folder / SINGLE).rename(folder / "spare")
    return folder


def load(folder: Path, **handler: Any) -> Engine:
    return Engine.load(folder, ModelConfig.parse({"handler": {"mode": MODE, **handler}}))


def name_in_index(folder: Path, name: str, index: str = INDEX) -> None:
    weights = load_file(folder / "own.safetensors")
    document = {"metadata": {}, "weight_map": dict.fromkeys(weights, name)}
    (folder / index).write_text(json.dumps(document))


def name_in_config(folder: Path, name: str) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "transformers_weights": name}))


@pytest.mark.parametrize("name", ["x.bin", "../outside.safetensors", "deep/inside.safetensors"])
@pytest.mark.parametrize("write", [name_in_index, name_in_config])
@pytest.mark.parametrize("allow_pickle", [False, True])
def test_a_folder_whose_files_name_others_than_weights_beside_them_is_not_loaded(
    folder: Path, name: str, write: Callable[[Path, str], None], allow_pickle: bool
) -> None:
    write(folder, name)
    with refused(WrongCheckpoint, name):
        load(folder, allow_pickle=allow_pickle)
    write(folder, str(folder / name))
    with pytest.raises(WrongCheckpoint):
        load(folder, allow_pickle=allow_pickle)
    assert not (folder.parent / "ran").exists()


@pytest.mark.parametrize("write", [name_in_index, name_in_config])
def test_weights_beside_the_file_that_names_them_are_loaded(
    folder: Path, write: Callable[[Path, str], None]
) -> None:
    write(folder, "own.safetensors")
    load(folder)


def test_an_index_that_the_config_names_is_checked(folder: Path) -> None:
    name_in_index(folder, "x.bin", "own.safetensors.index.json")
    name_in_config(folder, "own.safetensors.index.json")
    with refused(WrongCheckpoint, "x.bin"):
        load(folder)


def test_pickles_are_not_loaded_unless_allowed(folder: Path) -> None:
    torch.save(load_file(folder / "own.safetensors"), folder / PICKLE)
    with refused(WrongCheckpoint, PICKLE, "handler.allow_pickle: true"):
        load(folder)
    load(folder, allow_pickle=True)


def test_an_adapter_beside_the_weights_is_refused(folder: Path) -> None:
    """transformers would load it by itself, with weights that can be a pickle."""
    (folder / "spare").rename(folder / SINGLE)
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "../other"}')
    with refused(WrongCheckpoint, "adapter_config.json", "handler.adapters"):
        load(folder)


def test_indexes_of_components_are_checked(folder: Path) -> None:
    (folder / "unet").mkdir()
    name_in_index(folder, "../x.bin", "unet/diffusion_pytorch_model.safetensors.index.json")
    with refused(WrongCheckpoint, "../x.bin"):
        check_components(folder)


def test_a_pipeline_has_50_components_at_most(tmp_path: Path) -> None:
    path = tmp_path / "model_index.json"
    parts = {f"part{number}": ["diffusers", "Part"] for number in range(50)}
    path.write_text(json.dumps({"_class_name": "Pipeline", **parts}), encoding="utf-8")
    assert len(ModelIndex.read(path).components) == 50
    more = {"_class_name": "Pipeline", "one": ["diffusers", "Part"], **parts}
    path.write_text(json.dumps(more), encoding="utf-8")
    with pytest.raises(WrongCheckpoint, match="has 51 components"):
        ModelIndex.read(path)
