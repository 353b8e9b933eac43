"""What packing adds to a YAML that leaves TorchServe's keys out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_serve.handlers.checkpoints import placement
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.config.model_config import ModelConfig, TorchServeSection
from hf_serve.scripts.archives import serving_defaults
from hf_serve.scripts.archives.serving_defaults import (
    describe_keys,
    missing_keys,
    with_keys,
    with_lines,
)
from hf_serve.scripts.paths import config_path_of

FOUR_LINES = ("mode", "model_name", "save_mode", "dtype")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "find_accelerator", lambda: None)
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def added(folder: Path, **handler: Any) -> dict[str, Any]:
    top = {key: handler.pop(key) for key in list(handler) if key in ModelConfig.model_fields}
    config = ModelConfig.parse({**top, "handler": {"mode": "text_generation", **handler}})
    keys = missing_keys(config, folder)
    assert set(with_keys(config, keys).model_fields_set) == {*config.model_fields_set, *keys}
    return keys


@pytest.mark.parametrize("mode", modes())
def test_a_yaml_of_four_lines_is_served_as_the_yaml_of_its_mode_is(
    tmp_path: Path, mode: str
) -> None:
    shipped = ModelConfig.read(config_path_of(mode))
    section = shipped.handler.model_dump(include=set(FOUR_LINES), exclude_unset=True)
    short = ModelConfig.parse({"handler": section})
    packed = with_keys(short, missing_keys(short, tmp_path))
    names = TorchServeSection.model_fields
    assert {name: getattr(packed, name) for name in names} == {
        name: getattr(shipped, name) for name in names
    }


def test_what_a_yaml_says_stays(tmp_path: Path) -> None:
    given = {"batchSize": 4, "maxBatchDelay": 50, "continuousBatching": False, "maxWorkers": 3}
    assert added(tmp_path, **given) == {}


def test_texts_are_generated_continuously_unless_a_key_excludes_it(tmp_path: Path) -> None:
    assert added(tmp_path)["continuousBatching"] is True
    static = {"batchSize": 16, "maxBatchDelay": 1, "minWorkers": 1, "maxWorkers": 1}
    assert added(tmp_path, assistant_model="draft") == static
    assert added(tmp_path, adapters={"a": "adapter"}) == static
    assert "continuousBatching" not in added(tmp_path, maxWorkers=2)


def test_a_batch_has_more_requests_than_the_worker_has_room_for(tmp_path: Path) -> None:
    assert added(tmp_path)["batchSize"] == 256
    assert added(tmp_path, max_num_seqs=300, max_waiting=20)["batchSize"] == 321
    assert added(tmp_path, continuousBatching=True)["batchSize"] == 256


def test_an_export_on_a_cpu_has_two_workers_if_it_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"mode": "sentence_embedding", "save_mode": "openvino"}
    assert added(tmp_path, **keys)["maxWorkers"] == 2
    assert added(tmp_path, **{**keys, "save_mode": "pretrained"})["maxWorkers"] == 1
    assert "minWorkers" not in added(tmp_path, **keys, maxWorkers=1)
    monkeypatch.setattr(serving_defaults, "MAX_BYTES_OF_SEVERAL_WORKERS", 10)
    (tmp_path / "model.safetensors").write_bytes(bytes(11))
    assert added(tmp_path, **keys)["maxWorkers"] == 1


def test_a_load_has_time_for_large_weights_and_for_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"mode": "fill_mask"}
    assert "startupTimeout" not in added(tmp_path, **keys)
    assert added(tmp_path, **keys, pt2={"compile": {"enable": True}})["startupTimeout"] == 600
    monkeypatch.setattr(serving_defaults, "BYTES_OF_USUAL_LOADS", 10)
    monkeypatch.setattr(serving_defaults, "BYTES_A_SECOND", 2)
    (tmp_path / "model.safetensors").write_bytes(bytes(70))
    assert added(tmp_path, **keys)["startupTimeout"] == 150


def test_a_time_limit_of_the_yaml_is_not_contradicted(tmp_path: Path) -> None:
    keys = {"mode": "text_to_image"}
    assert added(tmp_path, **keys)["responseTimeout"] == 300
    assert "responseTimeout" not in added(
        tmp_path, **keys, predict_timeout=400, responseTimeout=500
    )


@pytest.mark.parametrize(
    "text",
    [
        "handler:\n  mode: fill_mask  # a comment\n",
        "---\nhandler:\n  mode: fill_mask\n",
        "%YAML 1.1\n---\nhandler:\n  mode: fill_mask\n",
        "{handler: {mode: fill_mask}}",
        "# first\n\nhandler: {mode: fill_mask}\nresponseTimeout: 60",
    ],
)
def test_keys_are_added_to_the_text_of_a_yaml(text: str) -> None:
    keys = {"batchSize": 16, "continuousBatching": True}
    assert yaml.safe_load(with_lines(text, keys)) == {**keys, **yaml.safe_load(text)}
    assert with_lines(text, {}) == text


def test_comments_of_a_yaml_are_packed() -> None:
    text = "handler:\n  mode: fill_mask  # a comment\n"
    assert with_lines(text, {"batchSize": 16}).endswith(text)


def test_added_keys_are_described_in_a_line() -> None:
    line = describe_keys({"batchSize": 256, "continuousBatching": True})
    assert line.endswith("leaves out: batchSize: 256, continuousBatching: true")
