from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reliability.clients import body_of, read_answer
from benchmarks.reliability.faults import MODEL, PATH
from benchmarks.soak import Row, failures
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.scripts.installation import ROOT
from tests.serving import Served


def document(*rows: Row) -> dict[str, Any]:
    return {
        "machine": {"cores": 2, "processor": "a processor", "load": 0.5},
        "seconds": 90,
        "rows": [{**asdict(row), "passes": row.passes} for row in rows],
        "liveness_ms": {"p50": 2.0, "p99": 10.0, "max": 20.0},
        "memory_mib": {"first": 1000.0, "last": 1010.0, "growth": 0.01},
    }


FINE = Row("fine", {200: 90, 500: 2}, seconds=4.0)


@pytest.mark.parametrize(
    ("row", "passes"),
    [
        (FINE, True),
        (Row("lost", {0: 1, 200: 9}, seconds=1.0), False),
        (Row("of another", {200: 9}, wrong=1, seconds=1.0), False),
        (Row("never normal", {200: 9}), False),
        (Row("late", {200: 9}, seconds=15.1), False),
        (Row("slow refusal", {503: 9}, seconds=1.0, slowest_refusal=1.1), False),
        (Row("not tried", skipped="no mount"), True),
    ],
    ids=lambda value: getattr(value, "what", ""),
)
def test_a_row_passes_where_each_promise_is_kept(row: Row, passes: bool) -> None:
    assert row.passes == passes
    assert failures(document(row), whole=False) == ([] if passes else [row.what])


def test_a_request_and_its_answer_have_the_same_id(served: Callable[..., Served]) -> None:
    model = served("sequence_classification")
    path = PATH.partition("/1.0/")[2].replace(MODEL, "model")
    headers = {"Host": "h", "Content-Type": "application/json", "url_path": path}
    ((status, answer),) = model.post(HttpRequest({"body": body_of("7-1", "A fine film")}, headers))
    assert status == 200 and answer["id"] == "7-1"
    label, score = read_answer(answer)
    assert label and 0 < score <= 1


@pytest.mark.soak
def test_under_faults_and_overload_each_request_has_one_answer_its_own(tmp_path: Path) -> None:
    output = tmp_path / "soak.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--seconds", "90", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    assert output.is_file(), done.stdout + done.stderr
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert len(rows) == 8
    for row in rows:
        if not row["skipped"]:
            assert row["statuses"]["200"], row
            assert "0" not in row["statuses"], row
            assert not row["wrong"], row
            # How soon is for `make soak` to say.
            assert row["seconds"] is not None, row
