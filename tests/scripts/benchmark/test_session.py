"""Formats are measured in processes, and figures are kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.scripts.benchmark import session
from hf_serve.scripts.benchmark.candidates import Candidate
from hf_serve.scripts.benchmark.model_source import ModelSource
from hf_serve.scripts.benchmark.session import Measured, Plan, Session
from tests.sentences import Sentence

EXACT = Candidate({"save_mode": "pretrained", "dtype": "float32"})
MEASURES = """
import json, sys
job = json.load(sys.stdin)
figures = {"rows_per_second": 10.0, "fidelity": None, "job": job}
print("A library prints a line.")
print(json.dumps(figures if job.get("rows") else {}))
"""
PLAN = Plan(rows=1, seconds=0.1)
Run = Callable[..., Measured]


@pytest.fixture
def run(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Measure a format with a program in the place of the one that loads a model."""
    (tmp_path / "rows.jsonl").write_text('{"inputs": ["A film.", "A play."]}\n')
    handler = {
        "mode": "sequence_classification",
        "model_name": str(checkpoint),
        "calibration": str(tmp_path / "rows.jsonl"),
    }
    source = ModelSource("mine", ModelConfig.parse({"handler": handler}))

    def measure(program: str, candidate: Candidate = EXACT, plan: Plan = PLAN) -> Measured:
        monkeypatch.setattr(session, "PROGRAM", (sys.executable, "-c", program))
        return Session(source, tmp_path / "bench", plan).measure(candidate)

    return measure


def test_a_format_is_packed_and_measured_with_rows_of_the_calibration_file(run: Run) -> None:
    found = run(MEASURES)
    assert found.figures
    job = found.figures["job"]
    assert found.figures["rows_per_second"] == 10
    assert len(job["rows"]) == 1
    assert job["rows"][0][0] in ("A film.", "A play.")
    assert job["path"].endswith("archives/mine")


def test_figures_are_kept_for_the_same_plan(run: Run) -> None:
    first = run(MEASURES)
    assert run("raise SystemExit(1)").figures == first.figures
    assert run("raise SystemExit(1)", plan=Plan(rows=1, seconds=0.2)).figures is None


def test_a_file_of_figures_that_is_not_whole_is_measured_again(run: Run, tmp_path: Path) -> None:
    run(MEASURES)
    (tmp_path / "bench" / "results.json").write_text("{")
    assert run(MEASURES).figures


def test_no_archive_stays(run: Run, tmp_path: Path) -> None:
    run("import os; os.makedirs('archives'); raise SystemExit(1)")
    run(MEASURES)
    assert not (tmp_path / "bench" / "archives").exists()


@pytest.mark.parametrize(
    ("program", "facts"),
    [
        ('print(\'{"problem": "The export differs."}\')', ["The export differs."]),
        ("import sys; sys.exit('no memory for it')", ["code 1", "no memory for it"]),
        ("import os; os.kill(os.getpid(), 9)", ["signal 9"]),
    ],
)
def test_a_format_that_fails_says_why_and_is_tried_again(
    run: Run, program: str, facts: list[str]
) -> None:
    failed = run(program)
    assert failed.figures is None
    assert failed.problem == Sentence(*facts)
    assert run(MEASURES).figures


def test_a_format_that_is_not_possible_starts_no_process(run: Run) -> None:
    impossible = Candidate(EXACT.keys, "handler has save_mode: onnx")
    assert run("raise SystemExit(1)", impossible).problem == "handler has save_mode: onnx"


def test_rows_that_cannot_be_read_are_a_problem_of_the_yaml(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("no JSON\n")
    assert run(MEASURES).problem == Sentence("rows.jsonl")


def test_a_model_without_rows_asks_for_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n")
    assert run(MEASURES).problem == Sentence("handler.calibration")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_process(run: Run, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    program = f"""
import os, pathlib, signal, time
pathlib.Path({str(alive)!r}).write_text(str(os.getpid()))
os.kill(os.getppid(), signal.SIGINT)
time.sleep(600)
"""
    with pytest.raises(KeyboardInterrupt):
        run(program)
    assert not psutil.pid_exists(int(alive.read_text()))
