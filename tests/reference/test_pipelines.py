from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.reference.checkpoints import write
from tests.serving import Served, differences
from tests.tiny import digest

PIPELINES = Path(__file__).with_name("pipelines.jsonl")


def parts(path: Path) -> list[dict[str, Any]]:
    """Return the parts of a file: a checkpoint and its rows."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [{**facts, "rows": list(islice(lines, facts["count"]))} for facts in lines]


def without_impossible(answer: Any) -> Any:
    """Leave out the spans of probability 0 that the pipeline adds to return `top_k` answers."""
    if isinstance(answer, list) and all("answer" in item for item in answer):
        return [item for item in answer if item["score"] > 0]
    return answer


@pytest.mark.parametrize(
    "part", parts(PIPELINES), ids=lambda part: f"{part['mode']}-{part['checkpoint']}"
)
def test_answers_are_those_of_the_pipelines_of_transformers_4(
    part: dict[str, Any], tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", part["mode"], part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    bodies = [{key: row[key] for key in ("inputs", "parameters")} for row in part["rows"]]
    wrong = {}
    replies = Served(folder, part["mode"]).post(*bodies)
    for row, (status, answer) in zip(part["rows"], replies, strict=True):
        expected = without_impossible(row["answer"])
        if found := differences(answer, expected, 1e-4):
            wrong[f"{row['inputs']} {row['parameters']} {status}"] = found[:3]
    assert not wrong
