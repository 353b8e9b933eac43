from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from scripts.serving.processes import end_group, group_members, started_at

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
