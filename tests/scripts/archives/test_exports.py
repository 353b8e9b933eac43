"""An export is kept until something that it depends on changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handlers.config.model_config import ModelConfig
from scripts.archives.exports import EXPORTING, exported
from tests import tiny
from tests.test_architecture import FILES, HANDLERS, IMPORTS, package_of

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


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the code of the kit, which can be changed."""
    folder = tmp_path / "handlers"
    shutil.copytree(HANDLERS, folder)
    monkeypatch.setattr("scripts.archives.exports.HANDLERS", folder)
    return folder


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


def test_code_that_an_export_does_not_run_keeps_it(code: Path, kept: Kept) -> None:
    for name in (
        "protocols/openai.py",
        "explainers/_page.py",
        "engine.py",
        "transformers_handler.py",
    ):
        with (code / name).open("a", encoding="utf-8") as file:
            file.write("# Changed.\n")
    assert kept()
    for name in ("tasks/fill_mask.py", "export/new.py", "errors.py"):
        with (code / name).open("a", encoding="utf-8") as file:
            file.write("# Changed.\n")
        assert not kept()


def test_everything_that_an_export_imports_is_code_that_it_depends_on() -> None:
    """The packages that it does not depend on write logs and metrics."""
    starts = [path for path in FILES if package_of(path) in ("export", "formats", "tasks")]
    reached, waiting = set[Path](), starts
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        modules = [module.partition(".")[2].split(".") for module in IMPORTS[path]]
        places = [HANDLERS.joinpath(*parts[:count]) for parts in modules for count in (-1, None)]
        waiting += [
            file
            for place in places
            for file in (place.with_suffix(".py"), place / "__init__.py")
            if file in IMPORTS
        ]
    packages = {package_of(path) for path in reached} - {"__init__", "telemetry"}
    assert packages == {Path(name).stem for name in EXPORTING}


def test_models_of_one_name_in_two_folders_are_exported_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports: list[Path] = []

    def export(checkpoint: Path, config: ModelConfig, target: Path, samples: Any) -> None:
        exports.append(checkpoint)
        (target / "model.pt").write_text(str(checkpoint))

    monkeypatch.setattr("handlers.formats.export", export)
    config = ModelConfig.parse({"handler": {"mode": MODE, "save_mode": "torchscript"}})
    for name in ("first", "second", "first", "second"):
        (tmp_path / name).mkdir(exist_ok=True)
        files = exported(tmp_path / name / "m.yaml", config, tmp_path / name, tmp_path / "build")
        assert files["model.pt"].read_text() == str(tmp_path / name)
    assert len(exports) == 2


def test_other_rows_and_other_weights_are_exported(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"inputs": "Ada sleeps"}', encoding="utf-8")
    assert not kept()
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    assert not kept()
    assert kept()
