"""Vectors are those of sentence-transformers, in random company."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference.embedding_checkpoints import MODE, digest, write
from tests.reference.test_pipelines import parts
from tests.serving import Served

EMBEDDINGS = Path(__file__).with_name("embeddings.jsonl")


@pytest.mark.parametrize("part", parts(EMBEDDINGS), ids=lambda part: str(part["checkpoint"]))
def test_vectors_are_those_of_sentence_transformers(part: dict[str, Any], tmp_path: Path) -> None:
    folder = write(tmp_path / "model", part["checkpoint"])
    assert digest(folder) == part["digest"], "not the checkpoint of the reference"
    model = Served(folder, MODE)
    assert model.engine.model.capabilities.supports_packing
    rows = random.Random(0).sample(part["rows"], len(part["rows"]))
    bodies = [{key: row[key] for key in ("inputs", "parameters")} for row in rows]
    batches = [bodies[:1], bodies[1:2], bodies[2:9], bodies[9:]]
    replies = [reply for batch in batches for reply in model.post(*batch)]
    for row, (status, answer) in zip(rows, replies, strict=True):
        assert status == 200, answer
        scale = max(1.0, float(np.abs(row["answer"]).max()))
        what = f"{row['inputs'][:20]} {row['parameters']}"
        np.testing.assert_allclose(answer, row["answer"], atol=2e-4 * scale, err_msg=what)
