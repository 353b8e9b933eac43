"""The model to measure: a folder, a YAML file or an archive."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.hosts.archives import FOLDER_VARIABLE
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.benchmark.model_source import NotMeasurable, read_source
from hf_serve.scripts.hub.mode_detection import ModeNotCertain
from tests.sentences import refused
from tests.standins.archives import write_archive
from tests.standins.checkpoints import write_checkpoint, write_config


@pytest.fixture(autouse=True)
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "unpacked"))


def test_a_folder_has_the_mode_of_its_files(checkpoint: Path) -> None:
    source = read_source(str(checkpoint), None)
    assert (source.name, source.config.handler.mode) == ("name", "sequence_classification")
    assert (source.checkpoint, source.packed) == (checkpoint, None)


def test_a_yaml_keeps_its_keys_and_its_paths(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"inputs": "A film."}\n')
    shutil.copytree(checkpoint, tmp_path / "model")
    path = write_config(
        tmp_path / "mine.yaml", model_name="model", calibration="rows.jsonl", max_length=8
    )
    source = read_source(str(path), None)
    handler = source.config.handler
    assert (source.name, handler.max_length) == ("mine", 8)
    assert source.checkpoint == tmp_path / "model"
    assert handler.calibration == str(tmp_path / "rows.jsonl")


def test_an_archive_with_weights_is_measured_in_every_format(
    checkpoint: Path, tmp_path: Path
) -> None:
    path = write_config(tmp_path / "mine.yaml", model_name=str(checkpoint))
    source = read_source(str(pack(path, export_path=tmp_path, checked=False).path), None)
    assert (source.name, source.packed) == ("mine", None)
    assert (source.checkpoint / "model.safetensors").is_file()


def test_an_archive_without_weights_has_one_format(tmp_path: Path) -> None:
    yaml = "handler: {mode: sequence_classification, save_mode: onnx}\n"
    source = read_source(str(write_archive(tmp_path, "packed", "", yaml)), None)
    assert source.packed == source.checkpoint
    assert source.config.handler.save_mode == "onnx"


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "model.gguf"
    with refused(NotMeasurable, "org/gone"):
        read_source("org/gone", None)
    other.touch()
    with refused(NotMeasurable, "model.gguf", ".mar"):
        read_source(str(other), None)


def test_a_checkpoint_that_is_not_served_is_refused(checkpoint: Path) -> None:
    with refused(NotMeasurable, str(checkpoint)):
        read_source(str(checkpoint), "question_answering")


def test_a_mode_that_is_not_certain_is_asked_for(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "base", head="")
    with refused(ModeNotCertain, "feature_extraction"):
        read_source(str(folder), None)


def test_a_yaml_whose_model_is_not_downloaded_says_how(tmp_path: Path) -> None:
    path = write_config(tmp_path / "later.yaml", model_name="org/later")
    with refused(WrongCheckpoint, "download_models.py"):
        read_source(str(path), None)
