"""How the two graphs are compared by which int8 is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from handlers.agreement import agreement
from handlers.quantizing import _without_padding

MASK = np.array([[True, True, True], [True, True, False]])


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 4)], ids=["ends", "tokens", "texts"])
def test_padding_neither_counts_nor_spoils_what_agrees(shape: tuple[int, ...]) -> None:
    logits = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    other = logits.copy()
    if shape[:2] == MASK.shape:
        other[~MASK] = 9
    found = agreement([_kept(logits)], [_kept(other)])
    assert found.label_agreement == 1
    assert found.largest_score_difference == 0


def _kept(values: Any) -> dict[str, Any]:
    return {"logits": _without_padding(values, MASK)}
