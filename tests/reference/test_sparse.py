from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference.sparse import MODE, TEXTS, write
from tests.serving import Served
from tests.tiny import digest

LINES = Path(__file__).with_name("sparse.jsonl").read_text(encoding="utf-8").splitlines()
PARTS: list[dict[str, Any]] = list(map(json.loads, LINES))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part["checkpoint"]))
def test_weights_are_those_of_the_sparse_encoders_of_sentence_transformers(
    part: dict[str, Any], tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    model = Served(folder, MODE)
    together = [answer for _, answer in model.post(*({"inputs": text} for text in TEXTS))]
    for text, found, (count, largest) in zip(TEXTS, together, part["weights"], strict=True):
        for answer in (found, model.ask(text)):
            weights = {each["index"]: each["value"] for each in answer}
            # A weight of about zero may be on either side of it.
            assert abs(len(weights) - count) <= 1
            assert {place: weights[place] for place, _ in largest} == {
                place: pytest.approx(value, abs=1e-4) for place, value in largest
            }
