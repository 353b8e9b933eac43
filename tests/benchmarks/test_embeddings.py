"""Run the benchmark of sentence embeddings with a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hf_serve.scripts.installation import ROOT


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
