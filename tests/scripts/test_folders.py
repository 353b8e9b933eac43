"""Folders that people have: each has its own sentence, in every command, and none a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import ConfigError, WrongCheckpoint
from hf_serve.scripts import create_archive, download_models
from hf_serve.scripts.archives.contents import contents
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.paths import checkpoint_of
from tests.sentences import Sentence, refused
from tests.standins.checkpoints import write_checkpoint, write_config

MODE = "sequence_classification"
Change = Callable[[Path], None]


def files(**contents: str) -> Change:
    """Return what writes files alone, whose names have __ for / and _dot_ for a dot."""

    def write(folder: Path) -> None:
        for name, text in contents.items():
            path = folder / name.replace("__", "/").replace("_dot_", ".").replace("_dash_", "-")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def checkpoint(change: Callable[[Path], Any] = lambda _: None, **options: Any) -> Change:
    """Return what writes a checkpoint and changes it."""

    def write(folder: Path) -> None:
        write_checkpoint(folder, **options)
        change(folder)

    return write


def inside(name: str, *others: str) -> Change:
    """Return what writes a checkpoint into a folder of the folder."""

    def write(folder: Path) -> None:
        write_checkpoint(folder / name)
        for other in others:
            shutil.copytree(folder / name, folder / other)

    return write


def config(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def head_of_three(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"] = torch.zeros(3, 32)
    weights["classifier.bias"] = torch.zeros(3)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def without_a_shard(folder: Path) -> None:
    min(folder.glob("model-*.safetensors")).unlink()


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def adapter_in_place_of_weights(folder: Path) -> None:
    without_weights(folder)
    (folder / "adapter_config.json").write_text(ADAPTER)


def gguf(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model-q4.gguf").touch()


STATIC = json.dumps(
    [{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
)
ADAPTER = json.dumps({"peft_type": "LORA", "base_model_name_or_path": "org/base"})
CUSTOM = {"model_type": "chatglm", "auto_map": {"AutoConfig": "configuration_chatglm.Config"}}

# A folder, and the facts of its sentence.
FOLDERS: dict[str, tuple[Change, list[object]]] = {
    "adapter": (
        files(adapter_config_dot_json=ADAPTER, adapter_model_dot_safetensors=""),
        ["LoRA", "org/base", "handler.adapters"],
    ),
    "adapter with a config": (
        checkpoint(adapter_in_place_of_weights),
        ["LoRA", "org/base", "handler.adapters"],
    ),
    "output of a training": (
        inside("checkpoint-60", "checkpoint-120"),
        ["output_dir", "checkpoint-120"],
    ),
    "output of a training with its last model": (
        inside("checkpoint-60", "checkpoint-120", "final"),
        ["output_dir", "final, checkpoint-120"],
    ),
    "output of a training of an adapter": (
        files(checkpoint_dash_9__adapter_config_dot_json=ADAPTER),
        ["output_dir", "LoRA", "checkpoint-9"],
    ),
    "old sentence-transformers": (
        inside("0_Transformer"),
        ["sentence-transformers", "0_Transformer"],
    ),
    "old BERT of sentence-transformers": (inside("0_BERT"), ["sentence-transformers", "0_BERT"]),
    "static embeddings without a tokenizer": (
        files(modules_dot_json=STATIC),
        ["static embeddings", "tokenizer.json"],
    ),
    "custom code": (checkpoint(config(**CUSTOM)), ["chatglm", "configuration_chatglm.Config"]),
    "custom code of a known type": (
        checkpoint(config(auto_map={"AutoModelForSequenceClassification": "modeling.Own"})),
        ["modeling.Own", "auto_map"],
    ),
    "GGUF": (files(model_dash_q4_dot_gguf=""), ["model-q4.gguf", "llama.cpp"]),
    "GGUF with a config": (checkpoint(gguf), ["model-q4.gguf", "llama.cpp"]),
    "ONNX": (files(model_dot_onnx=""), ["model.onnx", "ONNX"]),
    "pickle": (checkpoint(pickle=True), ["pytorch_model.bin", "handler.allow_pickle: true"]),
    "a shard is missing": (
        checkpoint(without_a_shard, shards=True),
        ["model.safetensors.index.json"],
    ),
    "a folder in it": (inside("model"), ["config.json", "model"]),
    "a broken config": (
        checkpoint(lambda folder: (folder / "config.json").write_text("{")),
        ["config.json"],
    ),
    "the hub's cache": (
        files(refs__main="abc", snapshots__abc__config_dot_json="{}", snapshots__b__x=""),
        ["cache", "snapshots"],
    ),
    "a pipeline of diffusers": (
        files(model_index_dot_json='{"_class_name": "P"}', unet__config_dot_json="{}"),
        ["diffusers", "model_index.json", "text_to_image"],
    ),
    "something else": (files(README_dot_md=""), ["config.json"]),
    "weights of TensorFlow": (checkpoint(without_weights), ["tf_model.h5", "TensorFlow"]),
}


@pytest.fixture(params=FOLDERS)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, list[object]]:
    """Return a folder, a YAML that names it, and the facts of its sentence."""
    write, facts = FOLDERS[request.param]
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder)
    return folder, write_config(tmp_path / "name.yaml", model_name=str(folder), dtype="auto"), facts


def run(main: Callable[..., None], *arguments: object) -> str:
    """Run a command that fails, and return what it printed."""
    app = typer.Typer()
    app.command()(main)
    ended = CliRunner().invoke(app, list(map(str, arguments)))
    assert ended.exit_code == 1
    assert isinstance(ended.exception, SystemExit), ended.exception
    assert "Traceback" not in ended.output
    return ended.output


def test_every_command_has_its_sentence(case: tuple[Path, Path, list[object]]) -> None:
    folder, path, facts = case
    with pytest.raises(ConfigError) as caught:
        list(download_models.bring(path, Hub("http://127.0.0.1:9"), force=False))
    assert str(caught.value) == Sentence(*facts)
    for main, more in ((download_models.main, ()), (create_archive.main, ("--no-check",))):
        printed = run(main, path, *more, *(["--export-path", folder.parent] if more else []))
        assert all(str(fact).split()[0] in printed for fact in facts)


def test_an_engine_that_loads_the_folder_says_the_same(tmp_path: Path) -> None:
    for name in ("adapter", "output of a training", "old sentence-transformers", "custom code"):
        folder, (write, facts) = tmp_path / name.replace(" ", "-"), FOLDERS[name]
        folder.mkdir()
        write(folder)
        with pytest.raises(WrongCheckpoint) as caught:
            Engine.load(folder, ModelConfig.parse({"handler": {"mode": MODE}}))
        assert str(caught.value) == Sentence(*facts)


@pytest.mark.parametrize("mode", [MODE, "text_to_image"])
def test_an_engine_names_a_path_that_is_no_folder(tmp_path: Path, mode: str) -> None:
    (tmp_path / "file").touch()
    config = ModelConfig.parse({"handler": {"mode": mode}})
    for name, fact in (("nowhere", "no such folder"), ("file", "is a file")):
        with pytest.raises(WrongCheckpoint) as caught:
            Engine.load(tmp_path / name, config)
        assert str(caught.value).startswith(f"{tmp_path / name}: ") and fact in str(caught.value)
        with pytest.raises(WrongCheckpoint, match=fact):
            Engine.load(tmp_path / name)


def test_a_folder_without_a_pipeline_is_named_for_what_it_is(tmp_path: Path) -> None:
    config = ModelConfig.parse({"handler": {"mode": "text_to_image"}})
    for name, facts in (
        ("the hub's cache", ["cache", "snapshots/abc"]),
        ("something else", ["model_index.json"]),
        ("a broken config", ["transformers", "config.json", "model_index.json"]),
    ):
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        FOLDERS[name][0](folder)
        with pytest.raises(WrongCheckpoint) as caught:
            Engine.load(folder, config)
        assert str(caught.value) == Sentence(*facts)


def test_two_names_for_a_head_of_three(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    head_of_three(folder)
    with pytest.raises(WrongCheckpoint) as caught:
        Engine.load(folder, ModelConfig.parse({"handler": {"mode": MODE, "dtype": "float32"}}))
    assert str(caught.value) == Sentence("classifier.bias", "[3]", "[2]", "config.json")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/model", "~/nowhere", "a/b/c"])
def test_a_wrong_path_is_named_with_the_folders_that_were_searched(
    tmp_path: Path, name: str
) -> None:
    path = write_config(tmp_path / "name.yaml", model_name=name, dtype="auto")
    with pytest.raises(ConfigError) as caught:
        contents(path)
    searched = (tmp_path / Path(name).expanduser()).resolve()
    assert str(searched) in str(caught.value)
    for main, more in ((download_models.main, ()), (create_archive.main, ("--no-check",))):
        assert "handler.model_name" in run(main, path, *more)


def test_a_model_that_is_not_downloaded_is_no_traceback(tmp_path: Path) -> None:
    path = write_config(tmp_path / "name.yaml", model_name="org/name", dtype="auto")
    assert "scripts/download_models.py" in run(create_archive.main, path, "--no-check")


@pytest.mark.parametrize("main", [download_models.main, create_archive.main])
def test_a_model_in_place_of_a_yaml_is_told_of_run(main: Any, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "film")
    assert run(main, folder).strip() == Sentence(folder, "YAML")
    assert run(main, "org/name").strip() == Sentence("org/name", "YAML")


def test_paths_are_relative_to_the_yaml_or_else_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("yaml/models/own", "work/models/own", "work/models/old"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    found = {}
    for name in ("models/own", "./models/own", "models/old", "org/name"):
        path = write_config(tmp_path / "yaml" / "name.yaml", model_name=name)
        config = ModelConfig.read(path)
        found[name] = checkpoint_of(path, config).absolute()
    assert found["models/own"] == found["./models/own"] == tmp_path / "yaml" / "models" / "own"
    assert found["models/old"] == tmp_path / "work" / "models" / "old"
    assert "artifacts" in found["org/name"].parts
    path = write_config(tmp_path / "yaml" / "name.yaml", adapters={"a": "models/own"})
    adapters = ModelConfig.read(path).handler.adapters
    assert adapters == {"a": str(tmp_path / "yaml" / "models" / "own")}


def test_a_pickle_of_words_is_no_tokenizer(tmp_path: Path) -> None:
    """Of such a folder, transformers makes a tokenizer that knows no word."""
    folder = write_checkpoint(tmp_path / "film")
    for path in folder.glob("*token*"):
        path.unlink()
    assert (folder / "vocab.pkl").is_file()
    with refused(WrongCheckpoint, "tokenizer.json"):
        Engine.load(folder, ModelConfig.parse({"handler": {"mode": "sequence_classification"}}))
