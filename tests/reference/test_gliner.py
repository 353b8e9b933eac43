"""Spans, labels and scores are those of gliner, gliner2 and gliclass, alone and in company."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.reference.gliner_checkpoints import (
    MODE,
    classifications,
    digest,
    extractions,
    requests,
    write,
)
from tests.serving import Served

FILES = (Path(__file__).with_name(name) for name in ("gliner.jsonl", "gliner2.jsonl"))
PARTS = [json.loads(line) for file in FILES for line in file.read_text("utf-8").splitlines()]


def with_answers(key: str) -> list[Any]:
    """Return the parts with a kind of answers, as a test's parameter."""
    return [pytest.param(part, id=part["checkpoint"]) for part in PARTS if key in part]


@pytest.mark.parametrize("part", with_answers("entities"))
def test_entities_are_those_of_the_package(part: dict[str, Any], tmp_path: Path) -> None:
    folder = write(tmp_path / "model", part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    model = Served(folder, MODE)
    bodies = [
        {"inputs": text, "parameters": {"labels": labels, **settings}}
        for text, labels, settings in _asked(part["checkpoint"])
    ]
    rows = list(zip(bodies, part["entities"], strict=True))
    random.Random(0).shuffle(rows)
    sent = [body for body, _ in rows]
    replies = [*model.post(sent[0]), *model.post(*sent[1:6]), *model.post(*sent[6:])]
    for (body, expected), (status, found) in zip(rows, replies, strict=True):
        assert status == 200, found
        if "gliner2" in part["checkpoint"]:
            found = sorted(found, key=_place)
        assert [_place(each) for each in found] == [tuple(each[:3]) for each in expected], body
        assert [each["score"] for each in found] == pytest.approx(
            [each[3] for each in expected], abs=1e-3
        )


@pytest.mark.parametrize("part", with_answers("labels"))
def test_labels_are_those_of_gliclass(part: dict[str, Any], tmp_path: Path) -> None:
    folder = write(tmp_path / "model", part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    model = Served(folder, "zero_shot_classification")
    bodies = [
        {"inputs": text, "parameters": {"candidate_labels": labels, **settings}}
        for text, labels, settings in classifications()
    ]
    replies = [*model.post(bodies[0]), *model.post(*bodies[1:6]), *model.post(*bodies[6:])]
    for (status, found), expected in zip(replies, part["labels"], strict=True):
        assert status == 200, found
        scores = dict(zip(found["labels"], found["scores"], strict=True))
        assert found["labels"][0] == max(expected, key=lambda each: each[1])[0]
        assert [scores[label] for label, _ in expected] == pytest.approx(
            [score for _, score in expected], abs=1e-3
        )


def _asked(checkpoint: str) -> Iterable[Any]:
    return extractions() if checkpoint.startswith("gliner2") else requests()


def _place(entity: dict[str, Any]) -> tuple[int, int, str]:
    return entity["start"], entity["end"], entity["entity_group"]
