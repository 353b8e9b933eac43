"""Run the whole benchmark with a tiny model: this kit and the reference on TorchServe.

`test_measurement.py` measures a server of a few lines instead.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from hf_serve.handlers.checkpoints.dtypes import pick_dtype
from hf_serve.scripts.installation import ROOT

CONTENDERS = ("reference", "kit")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a quick run."""
    folder = tmp_path_factory.mktemp("bench")
    chosen = ("--only", ",".join(CONTENDERS), "--modes", "sequence_classification")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.bench",
            "--quick",
            *chosen,
            "--clients=1,4",
            "--out",
            folder,
            "--work",
            folder,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def measured(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "results" / "serving.json").read_text(encoding="utf-8")))


@pytest.mark.nightly
def test_every_contender_is_measured_with_every_number_of_clients(measured: dict[str, Any]) -> None:
    lines = measured["modes"]["sequence_classification"]["lines"]
    assert {(line["contender"], line["clients"]) for line in lines} == {
        (name, clients) for name in CONTENDERS for clients in (1, 4)
    }
    for line in lines:
        assert line["errors"] == 0
        assert line["rows_per_second"] > 0
        assert 0 < line["p50_ms"] <= line["p90_ms"] <= line["p99_ms"]


@pytest.mark.nightly
def test_the_kit_is_compared_with_the_reference_and_its_engine(
    measured: dict[str, Any],
) -> None:
    lines = measured["modes"]["sequence_classification"]["lines"]
    kit, reference = lines[-1], lines[1]
    ratio = kit["rows_per_second"] / reference["rows_per_second"]
    assert kit["against"]["reference"]["median"] == pytest.approx(ratio)
    assert kit["share_of_engine"]["median"] > 0
    assert reference["share_of_engine"] is None


@pytest.mark.nightly
def test_startup_archive_and_memory_are_measured(measured: dict[str, Any]) -> None:
    reference, kit = measured["modes"]["sequence_classification"]["starts"]
    for start in (reference, kit):
        assert start["first_answer_seconds"] > 1
        assert start["worker_bytes"] > 100e6
    assert kit["archive_bytes"] > 1e6
    assert reference["archive_bytes"] is None


@pytest.mark.nightly
def test_rows_of_increasing_length_are_measured(measured: dict[str, Any]) -> None:
    lines = measured["modes"]["sequence_classification"]["scaling"]
    assert [line["times"] for line in lines] == [1, 2, 4, 8]
    for line in lines:
        assert line["tokens"] == pytest.approx(line["times"] * lines[0]["tokens"], rel=0.25)
        assert line["tokens_per_second"] > 0


@pytest.mark.nightly
def test_results_page_and_plots_are_written(folder: Path) -> None:
    page = (folder / "RESULTS.md").read_text(encoding="utf-8")
    computed = str(pick_dtype("auto", torch.device("cpu"))).removeprefix("torch.")
    assert f"| kit | {computed} | 4 |" in page
    assert "these figures mean nothing" in page
    assert {path.name for path in (folder / "results").glob("*.svg")} == {
        "serving.svg",
        "scaling.svg",
    }


@pytest.mark.nightly
def test_all_processes_have_exited(folder: Path) -> None:
    running = psutil.process_iter(["cmdline"])
    commands = (" ".join(process.info["cmdline"] or ()) for process in running)
    assert not [command for command in commands if str(folder) in command]
