"""An export is kept until something that it depends on changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handlers.config.model_config import ModelConfig
from scripts.kit.exports import exported
from tests import tiny

MODE = "sequence_classification"
Kept = Callable[..., bool]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Whether a YAML has the export of the first one: `kept({"batchSize": 2}, dtype="auto")`."""
    exports: list[str] = []

    def export(checkpoint: Path, config: ModelConfig, target: Path, samples: Any) -> None:
        exports.append(config.handler.save_mode)
        (target / "model.pt").touch()

    monkeypatch.setattr("handlers.formats.export", export)
    (tmp_path / "rows.jsonl").write_text('{"inputs": "Ada sings"}', encoding="utf-8")
    model = tiny.write(tmp_path / "model", MODE)

    def ask(keys: dict[str, Any] | None = None, **handler: Any) -> bool:
        own = {"mode": MODE, "save_mode": "torchscript", "calibration": "rows.jsonl", **handler}
        before = len(exports)
        config = ModelConfig.parse({**(keys or {}), "handler": own})
        files = exported(tmp_path / "m.yaml", config, model, tmp_path / "build")
        assert files.keys() == {"model.pt"}
        return len(exports) == before

    assert not ask()
    return ask


@pytest.mark.parametrize(
    ("keys", "handler"),
    [
        ({}, {}),
        ({"minWorkers": 2, "maxWorkers": 3, "jobQueueSize": 50}, {}),
        ({"responseTimeout": 300, "maxBatchDelay": 7}, {"predict_timeout": 20.0}),
    ],
)
def test_keys_of_serving_alone_keep_an_export(kept: Kept, keys: Any, handler: Any) -> None:
    assert kept(keys, **handler)


@pytest.mark.parametrize("handler", [{"max_length": 16}, {"save_mode": "onnx"}])
def test_keys_of_the_model_do_not(kept: Kept, handler: dict[str, Any]) -> None:
    assert not kept(**handler)


def test_other_rows_and_other_weights_are_exported(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"inputs": "Ada sleeps"}', encoding="utf-8")
    assert not kept()
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    assert not kept()
    assert kept()
