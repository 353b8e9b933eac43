from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference.rerankers import RANKINGS, Ranking, digest, write
from tests.serving import Served

MODE = "sentence_ranking"
LINES = Path(__file__).with_name("rerankers.jsonl").read_text(encoding="utf-8").splitlines()
PARTS: list[dict[str, Any]] = list(map(json.loads, LINES))


def bodies(ranking: Ranking) -> list[dict[str, Any]]:
    """Return the body of each pair."""
    parameters = {} if ranking.prompt is None else {"instruction": ranking.prompt}
    return [{"inputs": [ranking.query, text], "parameters": parameters} for text in ranking.texts]


def scores(answer: dict[str, Any]) -> Any:
    """Return the score of a pair, or its scores in the order of the labels."""
    return [each["score"] for each in answer["scores"]] if "scores" in answer else answer["score"]


@pytest.mark.parametrize("max_length", [None, 330])
@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part["checkpoint"]))
def test_scores_are_those_of_the_rerankers_of_sentence_transformers(
    part: dict[str, Any], max_length: int | None, tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    model = Served(folder, MODE, max_length=max_length)
    takes_instruction = part["checkpoint"] in ("qwen3", "stripped", "classifier", "bare")
    for ranking, expected in zip(RANKINGS, part["scores"], strict=True):
        if ranking.max_length != max_length:
            continue
        if ranking.prompt and not takes_instruction:
            assert model.refuse([ranking.query, "a"], instruction=ranking.prompt)[0] == 422
            continue
        asked = bodies(ranking)
        together = [scores(answer) for _, answer in model.post(*asked)]
        alone = [scores(model.post(body)[0][1]) for body in asked]
        for found in (together, alone):
            flat = [each for row in found for each in (row if isinstance(row, list) else [row])]
            wanted = [
                each for row in expected for each in (row if isinstance(row, list) else [row])
            ]
            assert flat == pytest.approx(wanted, abs=1e-4)
