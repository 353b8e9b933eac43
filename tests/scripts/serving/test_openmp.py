from __future__ import annotations

import os

import pytest

from hf_serve.scripts.serving.openmp import (
    MULTIPLE_MODELS,
    SINGLE_MODEL,
    SPINS,
    openmp_environment,
    short_spins,
)


def test_the_threads_of_a_single_model_spin_longer() -> None:
    assert openmp_environment(1, {}) == {"GOMP_SPINCOUNT": str(SINGLE_MODEL)}
    assert openmp_environment(4, {}) == {"GOMP_SPINCOUNT": str(MULTIPLE_MODELS)}
    assert SINGLE_MODEL > MULTIPLE_MODELS


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_variables_of_the_caller_are_kept(name: str) -> None:
    assert openmp_environment(1, {name: "ACTIVE"}) == {}


def test_commands_that_compute_spin_shortly_and_pass_nothing_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SPINS, raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with short_spins():
        assert os.environ[SPINS] == str(MULTIPLE_MODELS)
    assert SPINS not in os.environ
    monkeypatch.setenv(SPINS, "7")
    with short_spins():
        assert os.environ[SPINS] == "7"
    assert os.environ[SPINS] == "7"
