from __future__ import annotations

import json
from collections.abc import Sequence
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
    alone = [model.ask(text) for text in TEXTS]
    check(together, part["weights"])
    check(alone, part["weights"])


def test_queries_of_a_router_have_the_weights_of_its_table(tmp_path: Path) -> None:
    (part,) = (each for each in PARTS if each["checkpoint"] == "router")
    model = Served(write(tmp_path / "model", "router"), MODE)
    kinds: tuple[dict[str, str], ...] = ({"input_type": "query"}, {}, {"task": "search_query"})
    bodies = [{"inputs": text, "parameters": kind} for text in TEXTS for kind in kinds]
    answers = [answer for _, answer in model.post(*bodies)]
    check(answers[::3], part["queries"])
    check(answers[1::3], part["weights"])
    check(answers[2::3], part["queries"])
    check([model.ask(text, input_type="query") for text in TEXTS], part["queries"])


def check(answers: Sequence[Any], expected: Sequence[Any]) -> None:
    """Compare answers with the number of weights and the largest ones."""
    for answer, (count, largest) in zip(answers, expected, strict=True):
        weights = {each["index"]: each["value"] for each in answer}
        # A weight of about zero may be on either side of it.
        assert abs(len(weights) - count) <= 1
        assert {place: weights[place] for place, _ in largest} == {
            place: pytest.approx(value, abs=1e-4) for place, value in largest
        }
