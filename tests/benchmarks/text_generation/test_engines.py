from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.text_generation.contender import Job, Plan
from benchmarks.text_generation.engines import Engine
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
