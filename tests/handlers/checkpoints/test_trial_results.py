from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_serve.handlers.checkpoints import trial_results
from hf_serve.handlers.checkpoints.archive_signature import SUMS, sums_of, verify
from hf_serve.handlers.checkpoints.trial_results import FILE, TrialKey
from hf_serve.handlers.config.model_config import CONFIG_FILE, ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.formats import packable, pretrained
from hf_serve.handlers.tasks.warmup import BatchingTrial
from hf_serve.handlers.types.request import Request

MODE = "sequence_classification"
TEXTS = ("fine", "a text that is longer than the others", "no")


class Archive:
    """An unpacked archive of a tiny checkpoint, and how many trials its loads have run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trials = 0
        self.write(CONFIG_FILE, f"handler:\n  mode: {MODE}\n  dtype: float32\n")

    def write(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content, encoding="utf-8")
        self.add_sums()

    def add_sums(self) -> None:
        (self.folder / SUMS).parent.mkdir(exist_ok=True)
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        files = {path.relative_to(self.folder).as_posix(): path for path in paths}
        (self.folder / SUMS).write_bytes(sums_of({k: v for k, v in files.items() if k != SUMS}))

    def load(self, environment: Mapping[str, str] | None = None) -> Engine:
        return Engine.load(self.folder, sums=verify(self.folder, environment or {}))

    def record(self) -> dict[str, Any]:
        """Load the model, write what its trials found to the archive, and return it."""
        record = self.load().trial_record
        assert record
        self.write(FILE, record.model_dump_json())
        self.trials = 0
        found: dict[str, Any] = record.model_dump(mode="json")
        return found


@pytest.fixture
def archive(
    tmp_path: Path, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Archive:
    found = Archive(shutil.copytree(checkpoint(MODE), tmp_path / "archive"))

    def counted(trial: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            found.trials += 1
            return trial(*args)

        return run

    monkeypatch.setattr(pretrained, "as_packable", counted(packable.as_packable))
    monkeypatch.setattr(BatchingTrial, "set_batching", counted(BatchingTrial.set_batching))
    return found


def answers(engine: Engine) -> list[Any]:
    return engine.predict([Request(text) for text in TEXTS])


def test_a_load_with_the_same_key_runs_no_trials_and_answers_the_same(archive: Archive) -> None:
    expected = answers(archive.load())
    assert archive.trials == 1
    recorded = archive.record()

    engine = archive.load()

    assert archive.trials == 0
    assert engine.model.capabilities.supports_packing
    assert answers(engine) == expected
    assert engine.trial_record
    assert engine.trial_record.model_dump(mode="json") == recorded


def test_results_of_padded_rows_are_recorded_too(archive: Archive) -> None:
    padded = f"handler:\n  mode: {MODE}\n  dtype: float32\n  BetterTransformer: false\n"
    archive.write(CONFIG_FILE, padded)
    record = archive.record()
    record["results"] |= {"padded_limit": 0.0, "runs_alone": True}
    archive.write(FILE, json.dumps(record))

    model = archive.load().model

    assert archive.trials == 0
    assert (model.capabilities.supports_packing, model.padded_limit, model.runs_alone) == (
        False,
        0,
        True,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("files", "0"),
        ("settings", "0"),
        ("packages", {"torch": "1.0"}),
        ("processor", "0"),
        ("capability", "DEFAULT highest"),
        ("dtype", "bfloat16"),
        ("variables", {"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    ],
)
def test_a_record_with_another_key_is_not_used(archive: Archive, name: str, value: Any) -> None:
    record = archive.record()
    record["key"][name] = value
    archive.write(FILE, json.dumps(record))

    archive.load()

    assert archive.trials == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_a_load_with_another_number_of_threads_runs_no_trials(
    archive: Archive, threads: int
) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        archive.record()
        torch.set_num_threads(threads)
        engine = archive.load()
    finally:
        torch.set_num_threads(before)

    assert archive.trials == 0
    assert engine.model.capabilities.supports_packing


def test_an_archive_of_the_same_files_with_another_name_runs_no_trials(archive: Archive) -> None:
    archive.write("MAR-INF/MANIFEST.json", '{"model": {"modelName": "first"}}')
    archive.record()
    archive.write("MAR-INF/MANIFEST.json", '{"model": {"modelName": "second"}}')

    archive.load()

    assert archive.trials == 0


def test_the_key_has_the_processor_and_variables(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key() -> TrialKey:
        sums = verify(archive.folder, {})
        config = ModelConfig.read(archive.folder / CONFIG_FILE)
        found = TrialKey.here(sums, config, torch.device("cpu"), "float32")
        assert found
        return found

    keys = [key()]
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    keys.append(key())
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name : another\ncpu MHz : 1\n\nprocessor : 1\n")
    monkeypatch.setattr(trial_results, "CPU_INFO", info)
    keys.append(key())
    assert [one == other for one, other in pairwise(keys)] == [False] * 2
    info.write_text("processor : 2\nmodel name : another\ncpu MHz : 2\n")
    assert key() == keys[-1]


def test_other_weights_are_tried(archive: Archive) -> None:
    archive.record()
    weights = archive.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + bytes(4))
    archive.add_sums()

    archive.load()

    assert archive.trials == 1


def test_a_model_beside_a_file_that_was_not_packed_is_tried(archive: Archive) -> None:
    archive.record()
    (archive.folder / "adapter.json").write_text("{}")

    archive.load()

    assert archive.trials == 1


def test_no_record_is_used_or_made_without_verified_sums(archive: Archive) -> None:
    archive.record()

    engine = archive.load({"ARCHIVE_CHECKSUMS": "off"})

    assert archive.trials == 1
    assert engine.trial_record is None


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_accelerators_have_no_record(archive: Archive, device: str) -> None:
    config = ModelConfig.read(archive.folder / CONFIG_FILE)

    assert TrialKey.here({"config.json": "0"}, config, torch.device(device), "float32") is None


@pytest.mark.parametrize(
    "change",
    [
        lambda _: "no JSON",
        lambda _: "{}",
        lambda record: json.dumps({**record, "more": 1}),
        lambda record: json.dumps({**record, "results": {"packing": None}}),
        lambda record: json.dumps({**record, "results": {**record["results"], "packing": [-1, 0]}}),
        lambda record: json.dumps({**record, "results": {**record["results"], "packing": [99, 0]}}),
        lambda record: json.dumps({**record, "results": {**record["results"], "packing": [1, 99]}}),
        lambda record: json.dumps({**record, "results": {**record["results"], "runs_alone": 1}}),
    ],
)
def test_a_malformed_record_is_ignored_with_a_warning(
    archive: Archive,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[dict[str, Any]], str],
) -> None:
    archive.write(FILE, change(archive.record()))

    engine = archive.load()

    assert archive.trials == 1
    assert engine.model.capabilities.supports_packing
    assert [each.levelname for each in caplog.records if FILE in each.getMessage()] == ["WARNING"]


@pytest.mark.nightly
def test_a_compiled_model_has_no_record(archive: Archive) -> None:
    archive.write(CONFIG_FILE, f"handler:\n  mode: {MODE}\n  dtype: float32\npt2: eager\n")

    assert archive.load().trial_record is None
    assert archive.trials == 1
