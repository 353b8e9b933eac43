"""Set how long idle OpenMP threads of torch spin before they sleep."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# Iterations of the spin loop. Waking a sleeping thread takes longer than most operations of a
# model, but if several models share the cores, a spinning thread delays the others.
SINGLE_MODEL, MULTIPLE_MODELS = 20_000, 2_000
SPINS = "GOMP_SPINCOUNT"
WAIT_VARIABLES = {"OMP_WAIT_POLICY", SPINS}


def openmp_environment(models: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a number of models; none if the caller sets one already.

    See https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html.
    """
    if WAIT_VARIABLES & given.keys():
        return {}
    return {SPINS: str(SINGLE_MODEL if models == 1 else MULTIPLE_MODELS)}


@contextmanager
def short_spins() -> Iterator[None]:
    """Let idle threads of torch sleep early, if it is imported in this block.

    On a busy machine, threads that spin for the default time make computations take several times
    as long. Variables of the caller are kept.
    """
    if WAIT_VARIABLES & os.environ.keys():
        yield
        return
    os.environ[SPINS] = str(MULTIPLE_MODELS)
    try:
        yield
    finally:
        del os.environ[SPINS]
