"""Processes that cannot have further threads, and the heaps of threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# Prints what glibc says of its heaps while eight threads have objects.
PRINT_HEAPS = """
import ctypes, threading
together = threading.Barrier(9)
def allocate():
    own = bytearray(2000)
    together.wait()
    together.wait()
for _ in range(8):
    threading.Thread(target=allocate).start()
together.wait()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
together.wait()
"""


@contextmanager
def without_threads() -> Iterator[None]:
    """Let no thread start within the block."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        yield
