"""Similarities are those of sentence-transformers, by the function that the checkpoint names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference.embedding_checkpoints import TEXTS, digest, write
from tests.serving import Served

LINES = Path(__file__).with_name("similarities.jsonl").read_text(encoding="utf-8").splitlines()
PARTS: list[dict[str, Any]] = list(map(json.loads, LINES))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part["checkpoint"]))
def test_similarities_are_those_of_sentence_transformers(
    part: dict[str, Any], tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    model = Served(folder, "sentence_similarity")
    bodies = [
        {"inputs": {"source_sentence": text, "sentences": list(TEXTS)}, "parameters": {}}
        for text in TEXTS
    ]
    replies = [*model.post(bodies[0]), *model.post(*bodies[1:])]
    scale = max(1.0, float(np.abs(part["scores"]).max()))
    for (status, answer), expected in zip(replies, part["scores"], strict=True):
        assert status == 200, answer
        np.testing.assert_allclose(answer, expected, atol=2e-4 * scale)
