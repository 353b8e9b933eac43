"""Run the benchmark of sentence embeddings with a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.contenders.infinity import Infinity
from benchmarks.embedding.table import embeddings_section
from benchmarks.embeddings import main
from scripts.kit.places import ROOT

MACHINE = {"processor": "A processor", "cores": 2, "instructions": ["avx2"], "load": 0.1}


@pytest.mark.nightly
def test_a_trial_run_measures_the_server_and_its_engine_and_writes_the_results(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "benchmarks.embeddings", "--smoke", "--model", "bert_base"]
    command += ["--only", "kit_float32", "--work", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "smoke" / "results" / "embeddings.json").read_text())
    (turn,) = document["models"]["bert_base"]["contenders"]["kit_float32"]["turns"]
    assert set(turn["loads"]) == {"1", "32"}
    assert all(load["rows_per_second"] > 0 for load in turn["loads"].values())
    assert turn["engine"]["rows_per_second"] > 0
    assert "| kit_float32 |" in (tmp_path / "smoke" / "RESULTS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--only", "kit,unknown"), "'unknown' is not a contender; choose from kit, kit_float32,"),
        (("--model", "gpt5"), "'gpt5' is not a model; choose from minilm, bert_base."),
    ],
)
def test_unknown_names_are_reported_before_the_first_measurement(
    options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, options)
    assert result.exit_code != 0
    assert message in " ".join(result.output.replace("│", " ").split())


def test_infinity_serves_the_checkpoint_on_the_loopback_interface(tmp_path: Path) -> None:
    contender = Infinity(Path("checkpoint"), tmp_path)
    command = [str(each) for each in contender.command(8000)]
    assert command[command.index("--model-id") + 1] == "checkpoint"
    assert command[-4:] == ["--host", "127.0.0.1", "--port", "8000"]
    assert json.loads(contender.body("a text")) == {
        "model": "model",
        "input": "a text",
        "encoding_format": "base64",
    }


def test_ratios_are_taken_within_a_round_and_shown_with_their_targets() -> None:
    document = {
        "machine": MACHINE,
        "rounds": 2,
        "tiny": False,
        "models": {
            "minilm": {
                "contenders": {
                    "kit": contender("bfloat16", [(100, 600), (50, 500)], engine=1000),
                    "infinity": contender("float32", [(40, 100), (20, 50)]),
                },
                "agreement": {"kit": {"cosine": 0.99871}},
                "starts": [],
                "libraries": {
                    "sentence_transformers_torch": {"rows_per_second": [70, 90], "failure": None},
                    "sentence_transformers_onnx": {"rows_per_second": [], "failure": "No ONNX."},
                },
            }
        },
    }
    lines = embeddings_section(document).splitlines()
    (full,) = (line for line in lines if line.startswith("| kit | bfloat16 | 32 |"))
    assert "| 8.00 (6.00 to 10.00, target 5) | 0.55 (0.50 to 0.60, target 0.9) |" in full
    assert full.endswith("| 0.9987 |")
    (single,) = (line for line in lines if line.startswith("| kit | bfloat16 | 1 |"))
    assert "| 2.50 (2.50 to 2.50) |" in single
    assert "| sentence_transformers_torch | 80.0 |" in lines
    assert "- sentence_transformers_onnx failed: No ONNX." in lines


def contender(
    precision: str, rounds: list[tuple[float, float]], engine: float | None = None
) -> dict[str, Any]:
    turns = [
        {
            "loads": {"1": loaded(alone), "32": loaded(full)},
            "engine": {"rows_per_second": engine} if engine else None,
        }
        for alone, full in rounds
    ]
    return {"precision": precision, "failure": None, "turns": turns}


def loaded(rows_per_second: float) -> dict[str, float]:
    return {"rows_per_second": rows_per_second, "p50_ms": 1.0, "p99_ms": 2.0, "errors": 0}
