from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.batching.rows import outputs_agree


@pytest.mark.parametrize(
    ("found", "alike"), [([0.6, 47.0], True), ([0.6, -0.3], False), ([20.0, 47.0], False)]
)
def test_the_tolerance_depends_on_the_largest_logit(found: list[float], alike: bool) -> None:
    assert agree([found, [1.0]], [[0.0, found[1]], [1.0]], exact=False) == alike


@pytest.mark.parametrize("exact", [True, False])
def test_nan_agrees_with_nothing(exact: bool) -> None:
    assert not agree([[np.nan]], [[1.0]], exact=exact)


def test_float32_rounds_less() -> None:
    assert agree([[1.01]], [[1.0]], exact=False)
    assert not agree([[1.01]], [[1.0]], exact=True)


def agree(found: list[Any], expected: list[Any], *, exact: bool) -> bool:
    rows, others = ([{"logits": np.array(each)} for each in given] for given in (found, expected))
    return outputs_agree(rows, others, ("logits",), exact=exact)
