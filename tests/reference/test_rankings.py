from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference.rankings import MODE, RANKINGS, Ranking, write
from tests.serving import Served, differences
from tests.tiny import digest

LINES = Path(__file__).with_name("rankings.jsonl").read_text(encoding="utf-8").splitlines()
PARTS: list[dict[str, Any]] = list(map(json.loads, LINES))


def bodies(ranking: Ranking, part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the body of a ranking; for a model with several labels, one for each pair."""
    if part["checkpoint"] == "labels":
        return [{"inputs": [ranking.query, text]} for text in ranking.texts]
    inputs = {"query": ranking.query, "texts": ranking.texts}
    return [{"inputs": inputs, "parameters": {"top_n": ranking.top_n}}]


def scores(answer: Any) -> Any:
    """Return the scores of a pair in the order of the labels; a ranking as it is."""
    return [each["score"] for each in answer["scores"]] if "scores" in answer else answer


@pytest.mark.parametrize("max_length", [None, 48])
@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part["checkpoint"]))
def test_rankings_are_those_of_the_cross_encoders_of_sentence_transformers(
    part: dict[str, Any], max_length: int | None, tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    model = Served(folder, MODE, max_length=max_length)
    asked = [
        (bodies(ranking, part), answer)
        for ranking, answer in zip(RANKINGS, part["answers"], strict=True)
        if ranking.max_length == max_length
    ]
    replies = iter(model.post(*[body for group, _ in asked for body in group]))
    for group, expected in asked:
        together = [next(replies)[1] for _ in group]
        alone = [model.post(body)[0][1] for body in group]
        for found in (together, alone):
            found = list(map(scores, found)) if len(group) > 1 else scores(found[0])
            wanted = expected if len(group) > 1 or "index" in str(expected) else expected[0]
            assert not differences(found, wanted, 1e-4), group
