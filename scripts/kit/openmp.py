"""Set how long idle OpenMP threads of torch spin before they sleep."""

from __future__ import annotations

from collections.abc import Mapping

# Iterations of the spin loop. Waking a sleeping thread takes longer than most operations of a
# model, but if several models share the cores, a spinning thread delays the others.
SINGLE_MODEL, MULTIPLE_MODELS = 20_000, 2_000
WAIT_VARIABLES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}


def openmp_environment(models: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a number of models; none if the caller sets one already.

    See https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html.
    """
    if WAIT_VARIABLES & given.keys():
        return {}
    return {"GOMP_SPINCOUNT": str(SINGLE_MODEL if models == 1 else MULTIPLE_MODELS)}
