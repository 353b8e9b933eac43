"""Vectors and scores are those of PyLate, in random company."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference.embedding_checkpoints import digest
from tests.reference.late_interaction import MODE, QUERIES, TEXTS, write
from tests.serving import Served

LINES = Path(__file__).with_name("late_interaction.jsonl").read_text(encoding="utf-8").splitlines()
PARTS = list(map(json.loads, LINES))


@pytest.fixture(params=PARTS, ids=[part["checkpoint"] for part in PARTS], scope="module")
def part(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


@pytest.fixture(scope="module")
def model(part: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = write(tmp_path_factory.mktemp("colbert") / "model", part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    return Served(folder, MODE)


def test_vectors_are_those_of_pylate(part: dict[str, Any], model: Served) -> None:
    rows = [
        ({"inputs": text, "parameters": {"prompt_name": name}}, vectors)
        for name, texts in (("query", QUERIES), ("document", TEXTS))
        for text, vectors in zip(texts, part[name], strict=True)
    ]
    random.Random(0).shuffle(rows)
    bodies = [body for body, _ in rows]
    replies = [*model.post(bodies[0]), *model.post(*bodies[1:5]), *model.post(*bodies[5:])]
    for (body, expected), (status, answer) in zip(rows, replies, strict=True):
        assert status == 200, answer
        np.testing.assert_allclose(answer, expected, atol=2e-4, err_msg=str(body)[:60])


def test_scores_are_those_of_pylate(part: dict[str, Any], model: Served) -> None:
    for query, expected in zip(QUERIES, part["scores"], strict=True):
        ranked = model.ask({"query": query, "texts": list(TEXTS)})
        assert [each["score"] for each in ranked] == sorted(
            (each["score"] for each in ranked), reverse=True
        )
        found = {each["index"]: each["score"] for each in ranked}
        scores = [found[number] for number in range(len(TEXTS))]
        np.testing.assert_allclose(scores, expected, atol=2e-3)
