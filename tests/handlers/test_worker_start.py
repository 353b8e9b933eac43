"""The start of a process that serves an archive."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hf_serve.handlers.checkpoints.archive_signature import SUMS, sums_of

# Loads an archive without a checkpoint, and prints what glibc says of its heaps with eight threads.
LOAD = """
import ctypes, sys, threading
from contextlib import suppress
from pathlib import Path
from hf_serve.handlers.errors import ConfigError
from hf_serve.handlers.worker_start import load_engine, prepare_process
prepare_process()
with suppress(ConfigError):
    load_engine(Path(sys.argv[1]))
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


@pytest.mark.nightly
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc for its heaps")
def test_threads_that_verify_an_archive_leave_no_heaps_to_those_of_requests(tmp_path: Path) -> None:
    config = b"continuousBatching: true\nhandler: {mode: text_generation}\n"
    files = {"model-config.yaml": config, **{f"{each}.txt": bytes(2_000_000) for each in range(8)}}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / SUMS).parent.mkdir()
    (tmp_path / SUMS).write_bytes(sums_of({name: tmp_path / name for name in files}))
    heaps = subprocess.check_output([sys.executable, "-c", LOAD, str(tmp_path)], text=True)
    assert heaps.count("<heap ") == 1
