from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pytest

from handlers.runtime.cgroup import available_cores, cpu_quota, memory_limit

CORES, MEMORY = 8, int(psutil.virtual_memory().total)


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], Path]:
    """Write the files of a cgroup on a machine with eight cores."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(CORES)))

    def write(files: Mapping[str, str]) -> Path:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n", encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("files", "quota", "cores"),
    [
        ({}, None, CORES),
        ({"cpu.max": "max 100000"}, None, CORES),
        ({"cpu.max": "250000 100000"}, 2.5, 2),
        ({"cpu.max": "10000 100000"}, 0.1, 1),
        ({"cpu.max": "1600000 100000"}, 16, CORES),
        ({"cpu.max": "800000 100000"}, 8, CORES),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None, CORES),
        ({"cpu/cpu.cfs_quota_us": "300000"}, None, CORES),
        ({"cpu.max": "nonsense"}, None, CORES),
    ],
)
def test_the_quota_of_the_container_limits_the_cores(
    cgroup: Callable[[Mapping[str, str]], Path],
    files: Mapping[str, str],
    quota: float | None,
    cores: int,
) -> None:
    folder = cgroup(files)
    assert cpu_quota(folder) == quota
    assert available_cores(folder) == cores


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MEMORY),
        ({"memory.max": "max"}, MEMORY),
        ({"memory.max": "1000000"}, 1_000_000),
        ({"memory/memory.limit_in_bytes": "1000000"}, 1_000_000),
        # cgroup v1 without a limit.
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, MEMORY),
    ],
)
def test_the_limit_of_the_container_counts(
    cgroup: Callable[[Mapping[str, str]], Path], files: Mapping[str, str], expected: int
) -> None:
    assert memory_limit(cgroup(files)) == expected
