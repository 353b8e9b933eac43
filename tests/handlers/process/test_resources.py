from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from hf_serve.handlers.process import resources
from hf_serve.handlers.process.resources import available_cores, cpu_quota, memory_limit
from tests.threads import PRINT_HEAPS

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


START = """
import ctypes, psutil, sys
from hf_serve.handlers.process.resources import limit_memory_growth
if sys.argv[1] == "limited":
    limit_memory_growth()
rss = lambda: psutil.Process().memory_info().rss
"""
# Prints by how many megabytes the process grows while it multiplies matrices of new shapes.
# TorchServe has imported torch before it imports a handler.
NEW_SHAPES = f"""
import torch
{START}
linear = torch.nn.Linear(384, 384, dtype=torch.bfloat16)
def multiply(start):
    for rows in range(start, start + 100):
        linear(torch.ones(rows, 384, dtype=torch.bfloat16))
    return rss()
with torch.inference_mode():
    print((-multiply(1) + multiply(101)) / 1e6)
"""
# Prints what remains of a large buffer that is freed while a later small one is in use.
FREED_BUFFERS = f"""
{START}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(30 << 20))
before, large = rss(), libc.malloc(20 << 20)
ctypes.memset(large, 1, 20 << 20)
small = [libc.malloc(100_000) for _ in range(100)]
libc.free(large)
print((rss() - before) / 1e6)
"""

# Prints what remains of small objects that are freed while some between them are in use, after the
# second of two batches of them. It is released where time passes between the two.
HOLES = f"""
{START}
from hf_serve.handlers.process.resources import RELEASE_INTERVAL, FreedMemory
now, used = 0, []
freed, before = FreedMemory(lambda: now), rss()
for batch in range(2):
    used += [b"x" * 50_000 for _ in range(1000)][::20]
    freed.release()
    if sys.argv[1] == "limited":
        now += RELEASE_INTERVAL
print((rss() - before) / 1e6)
"""

THREADS = (
    """
import sys
from hf_serve.handlers.process.resources import share_heap_between_threads
if sys.argv[1] == "limited":
    share_heap_between_threads()
"""
    + PRINT_HEAPS
)


def megabytes(program: str, limits: str, **variables: str) -> float:
    return float(output(program, limits, **variables))


def output(program: str, limits: str, **variables: str) -> str:
    options = (*resources.MALLOC_OPTIONS, *resources.ONE_ARENA)
    own = {*resources.CACHE_VARIABLES, *(option.variable for option in options)}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    command = [sys.executable, "-c", program, limits]
    return subprocess.check_output(command, env=environment | variables, text=True)


@pytest.mark.nightly
def test_new_shapes_do_not_make_a_process_grow() -> None:
    unlimited = megabytes(NEW_SHAPES, "unlimited")
    if unlimited < 40:
        pytest.skip("torch does not multiply bfloat16 with oneDNN on this processor")
    assert megabytes(NEW_SHAPES, "limited") < unlimited / 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets options of glibc")
def test_large_buffers_leave_no_holes_in_the_heap() -> None:
    assert megabytes(FREED_BUFFERS, "unlimited") > 15
    assert megabytes(FREED_BUFFERS, "limited") < 5
    assert megabytes(FREED_BUFFERS, "limited", MALLOC_MMAP_THRESHOLD_="33554432") > 15
    tunables = "glibc.malloc.mmap_threshold=33554432"
    assert megabytes(FREED_BUFFERS, "limited", GLIBC_TUNABLES=tunables) > 15


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc for the memory")
def test_what_is_freed_between_objects_in_use_is_released_at_intervals() -> None:
    assert megabytes(HOLES, "unlimited") > 40
    assert megabytes(HOLES, "limited") < 15


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc for its heaps")
def test_threads_of_requests_share_one_heap() -> None:
    assert output(THREADS, "limited").count("<heap ") == 1
    assert output(THREADS, "unlimited").count("<heap ") > 1
    assert output(THREADS, "limited", MALLOC_ARENA_MAX="4").count("<heap ") > 1


def test_a_capacity_that_the_user_set_is_kept(monkeypatch: Any) -> None:
    environment = {"LRU_CACHE_CAPACITY": "1024"}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(resources, "_glibc", lambda: None)  # as on Windows, macOS and Alpine
    resources.limit_memory_growth()
    assert environment == {"LRU_CACHE_CAPACITY": "1024", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
