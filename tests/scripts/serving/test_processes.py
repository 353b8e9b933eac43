from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import psutil

from hf_serve.scripts.serving.processes import MIB, Memory, end_group, group_members, started_at

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"])
print("up", flush=True)
time.sleep(60)
"""


def test_a_group_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "stubborn.py"
    program.write_text(STUBBORN)
    leader = subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout
    assert [leader.stdout.readline() for _ in range(2)] == [b"up\n", b"up\n"]
    group = group_members(leader.pid)

    end_group(leader.pid, timeout=2)

    assert len(group) == 2
    assert not group_members(leader.pid)


def test_an_exited_process_has_no_start_time() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert started_at(ended.pid) is None
    assert started_at(psutil.Process().pid) == psutil.Process().create_time()


def test_memory_of_a_process_is_private_until_it_is_shared_with_a_fork() -> None:
    before = Memory.of(os.getpid())
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.write(b"x" * 64 * MIB)
        alone = Memory.of(os.getpid())
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        forked = Memory.of(os.getpid())
        both = Memory.of_all([psutil.Process(), psutil.Process(pid)])
        os.close(writer)
        os.waitpid(pid, 0)

    assert alone.private - before.private >= 60 * MIB
    assert alone.private - forked.private >= 60 * MIB
    assert both.shared >= 60 * MIB
    assert both.private < alone.private + before.private


def test_an_ended_process_has_no_memory() -> None:
    assert Memory.of(0) == Memory()
    assert str(Memory(3 * MIB, 5 * MIB)) == "3 MiB private, 5 MiB shared"
