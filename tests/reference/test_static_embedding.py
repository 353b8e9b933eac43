from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference.static_embedding import KINDS, MODE, TEXTS, write
from tests.serving import Served

LINES = Path(__file__).with_name("static_embedding.jsonl").read_text(encoding="utf-8").splitlines()
VECTORS: dict[str, Any] = {each["checkpoint"]: each["vectors"] for each in map(json.loads, LINES)}


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_the_library(kind: str, tmp_path: Path) -> None:
    model = Served(write(tmp_path / "model", kind), MODE)
    expected = np.array(VECTORS[kind])
    together = [answer for _, answer in model.post(*({"inputs": text} for text in TEXTS))]
    alone = [model.ask(text) for text in TEXTS]
    assert np.allclose(together, expected, atol=2e-6)
    assert np.allclose(alone, expected, atol=2e-6)
