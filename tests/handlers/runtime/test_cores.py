from __future__ import annotations

import os
from pathlib import Path

import pytest

from handlers.runtime import cores


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    for name in ("CPU_QUOTA", "CPU_QUOTA_V1", "PERIOD_V1"):
        monkeypatch.setattr(cores, name, tmp_path / name)


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", 4),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("800000 100000", 4),
        ("strange", 4),
    ],
)
def test_the_quota_of_a_cgroup_limits_the_cores(quota: str, expected: int) -> None:
    cores.CPU_QUOTA.write_text(f"{quota}\n", encoding="utf-8")
    assert cores.available_cores() == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 4), ("300000", 3)])
def test_the_quota_of_the_first_version_limits_the_cores(quota: str, expected: int) -> None:
    cores.CPU_QUOTA_V1.write_text(f"{quota}\n", encoding="utf-8")
    cores.PERIOD_V1.write_text("100000\n", encoding="utf-8")
    assert cores.available_cores() == expected


def test_without_a_cgroup_the_affinity_decides() -> None:
    assert cores.cpu_quota() is None
    assert cores.available_cores() == 4
