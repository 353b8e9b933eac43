"""Hypothesis settings for tests with a fixed number of examples."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings


def drawn(count: int) -> settings:
    """Return settings that draw `count` examples, the same in each run, and shrink none."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
