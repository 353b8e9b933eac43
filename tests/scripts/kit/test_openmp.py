from __future__ import annotations

import pytest

from scripts.kit.openmp import MULTIPLE_MODELS, SINGLE_MODEL, openmp_environment


def test_the_threads_of_a_single_model_spin_longer() -> None:
    assert openmp_environment(1, {}) == {"GOMP_SPINCOUNT": str(SINGLE_MODEL)}
    assert openmp_environment(4, {}) == {"GOMP_SPINCOUNT": str(MULTIPLE_MODELS)}
    assert SINGLE_MODEL > MULTIPLE_MODELS


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_variables_of_the_caller_are_kept(name: str) -> None:
    assert openmp_environment(1, {name: "ACTIVE"}) == {}
