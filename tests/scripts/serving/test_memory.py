from __future__ import annotations

import mmap
import os

import psutil

from scripts.serving.memory import MIB, Memory


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
