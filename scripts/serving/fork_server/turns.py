"""Which workers may load their models at the same time."""

from __future__ import annotations

from collections.abc import Iterable

# A worker that loads longer keeps no others from it, and none waits longer. Together with the time
# in which a launcher waits for the server, it must be below TorchServe's two minutes for a start.
LOADING_SECONDS = 45.0


def has_turn(waited: float, loading: Iterable[float], slots: int) -> bool:
    """Return whether a worker may start to load its model.

    Args:
        waited: how long it has waited, in seconds.
        loading: for how long each of the others has been loading.
        slots: how many may load at the same time.
    """
    return waited >= LOADING_SECONDS or sum(age < LOADING_SECONDS for age in loading) < slots


def next_turn(waited: Iterable[float], loading: Iterable[float]) -> float | None:
    """Return after how many seconds a worker has its turn at the latest; None if none waits."""
    waiting = list(waited)
    ages = [age for age in (*waiting, *loading) if age < LOADING_SECONDS]
    return LOADING_SECONDS - max(ages, default=LOADING_SECONDS) if waiting else None
