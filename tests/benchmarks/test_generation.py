"""Run the benchmark of text generation with tiny models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hf_serve.scripts.installation import ROOT


@pytest.mark.nightly
def test_a_trial_run_measures_the_servers_and_an_engine_and_writes_the_results(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "benchmarks.generation", "--smoke", "--model", "qwen2"]
    command += ["--only", "kit,kit_streamed,transformers_static", "--work", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "smoke" / "results" / "generation.json").read_text())
    found = document["models"]["qwen2"]
    assert {(line["contender"], line["setting"]) for line in found["lines"]} == {
        (name, setting)
        for name in ("kit", "kit_streamed", "transformers_static")
        for setting in ("equal", "own")
    }
    assert all(line["tokens_per_second"] > 0 for line in found["lines"])
    assert found["latency"]["busy_ms"] > 0
    assert found["hang_ups"]["clients"] == document["plan"]["hang_ups"]
    assert "| kit_streamed |" in (tmp_path / "smoke" / "RESULTS.md").read_text(encoding="utf-8")
