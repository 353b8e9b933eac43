from __future__ import annotations

import subprocess
import sys

WORKER = """
import atexit, logging, sys
from handlers.runtime import worker_exit

logging.basicConfig(stream=sys.stdout)
atexit.register(print, "cleaned up")
worker_exit.LAST_RESPONSES_SECONDS = 0
worker_exit.end_worker()
"""


def test_a_worker_ends_without_clean_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKER], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stderr
    assert "this worker ends, and TorchServe starts a new one" in done.stdout
    assert "cleaned up" not in done.stdout
