"""How long a thread that waits keeps its core, told to GNU's OpenMP, which torch computes with."""

from __future__ import annotations

from collections.abc import Mapping

# Turns of a loop. Waking a thread takes longer than most of a model's operations; where models
# share cores, one that turns keeps another from computing.
ALONE, TOGETHER = 20_000, 2_000
CHOSEN = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}


def openmp_environment(models: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for workers of so many models; none where the caller's say it already.

    See https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html.
    """
    if CHOSEN & given.keys():
        return {}
    return {"GOMP_SPINCOUNT": str(ALONE if models == 1 else TOGETHER)}
