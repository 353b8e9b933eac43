from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference.tables import CASES, MODE, write
from tests.serving import Served
from tests.tiny import digest

LINES = Path(__file__).with_name("tables.jsonl").read_text(encoding="utf-8").splitlines()
PARTS: list[dict[str, Any]] = list(map(json.loads, LINES))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part["checkpoint"]))
def test_answers_about_tables_are_those_of_the_pipeline_of_transformers_4(
    part: dict[str, Any], tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    bodies = [{"inputs": inputs, "parameters": given} for inputs, given in CASES]
    assert len({json.dumps(answer) for answer in part["answers"]}) > len(CASES) / 2
    replies = Served(folder, MODE).post(*bodies)
    expected = [(200, answer) for answer in part["answers"]]
    assert replies == expected
