"""Whether the contributions of the segments sum to what the model does without them."""

from __future__ import annotations

import numpy as np
import pytest

from hf_serve.handlers.explainers.base import Attribution


@pytest.mark.parametrize(
    ("values", "output", "baseline", "converged"),
    [
        ([1.0, 1.0], 3.0, 1.0, True),
        ([1.0, 1.04], 3.0, 1.0, True),
        ([1.0, 1.5], 3.0, 1.0, False),
        ([0.0, 0.0], 3.0, 3.0, True),
        ([0.1, 0.0], 3.0, 3.0, False),
    ],
)
def test_a_sum_within_five_percent_has_converged(
    values: list[float], output: float, baseline: float, converged: bool
) -> None:
    """That of a text without tokens is exact: it is its own baseline."""
    assert Attribution(np.array(values), output, baseline).converged is converged
