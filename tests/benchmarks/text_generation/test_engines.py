from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.contenders.external import NotInstalled
from benchmarks.text_generation import engines
from benchmarks.text_generation.contender import Job, Plan
from benchmarks.text_generation.engines import VLLM, Engine, EngineFailed
from benchmarks.text_generation.models import language_model

PRINTS_SPEEDS = """
import json, os, sys
job = json.load(sys.stdin)
print("a line of a log")
speeds = {
    name: {"tokens": sum(each["new_tokens"] for each in requests), "seconds": 2.0}
    for name, requests in job["workloads"].items()
}
print(json.dumps(speeds))
print("a last line:", os.environ["SETTING"])
"""
FAILS = "import sys; sys.stdin.read(); raise ValueError('the model is too large')"


def job(checkpoint: Path = Path("model")) -> Job:
    return Job("model", checkpoint, 512, Plan(clients=2, requests=4, seconds=60))


def engine(program: str, folder: Path) -> Engine:
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    return Engine("engine", "float32", [str(path)], folder, {"SETTING": "set"})


def test_a_program_gets_the_job_and_prints_its_speeds(tmp_path: Path) -> None:
    found = engine(PRINTS_SPEEDS, tmp_path).measure(job()).speeds
    for name, requests in job().workloads.items():
        assert found[name].tokens == sum(each.new_tokens for each in requests)
        assert found[name].tokens_per_second == found[name].tokens / 2
    assert "a last line: set" in (tmp_path / "engines" / "engine.log").read_text()


def test_an_error_of_a_program_is_named_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"engine failed: .*the model is too large .*engine.log"):
        engine(FAILS, tmp_path).measure(job())


def test_a_program_that_takes_too_long_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "TIMEOUT", 0.1)
    with pytest.raises(EngineFailed, match="did not finish within"):
        engine("import time; time.sleep(600)", tmp_path).measure(job())


def test_vllm_is_installed_by_the_target_that_the_error_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "ROOT", tmp_path)
    with pytest.raises(
        NotInstalled, match=r"vllm is not installed; run `make \.venv-vllm/\.ready`"
    ):
        VLLM("vllm", tmp_path, {}).prepare()


@pytest.mark.nightly
@pytest.mark.parametrize("batch", [1, 3])
def test_static_batches_generate_what_is_asked_for(tmp_path: Path, batch: int) -> None:
    checkpoint = language_model(tmp_path / "model", "distilgpt2", tiny=True)
    generate = Engine(
        "generate", "float32", ["transformers_engine.py", "float32", str(batch)], tmp_path
    )
    found = generate.measure(job(checkpoint)).speeds
    asked = {
        name: sum(each.new_tokens for each in requests)
        for name, requests in job().workloads.items()
    }
    assert {name: each.tokens for name, each in found.items()} == asked
