"""The start of a process that serves an archive."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hf_serve.handlers.checkpoints.archive_signature import SUMS, sums_of
from tests.threads import PRINT_HEAPS

# Loads an archive without a checkpoint, and prints what glibc says of its heaps with eight threads.
LOAD = (
    """
import sys
from contextlib import suppress
from pathlib import Path
from hf_serve.handlers.errors import ConfigError
from hf_serve.handlers.worker_start import load_engine, prepare_process
prepare_process()
with suppress(ConfigError):
    load_engine(Path(sys.argv[1]))
"""
    + PRINT_HEAPS
)


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
