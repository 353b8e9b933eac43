"""Measure sentence-transformers in process, in a Python of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contenders import sentence_transformers_engine
from benchmarks.contenders.external import NotInstalled
from hf_serve.handlers.errors import KitError
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.scripts.installation import ROOT

ENVIRONMENT = ".venv-infinity"
BACKENDS = ("torch", "onnx", "openvino")
TIMEOUT = 600


class LibraryFailed(KitError):
    """sentence-transformers ended without a result."""

    def __init__(self, backend: str, output: str) -> None:
        last = output.strip().splitlines()[-1:] or ["it printed no error"]
        super().__init__(f"sentence-transformers ({backend}) could not be measured: {last[0]}.")


def measure_library(backend: str, checkpoint: Path, texts: Sequence[str], seconds: float) -> float:
    """Return the rows/s of a backend, with the library's batches of 32 texts sorted by length.

    Raises:
        NotInstalled: there is no such environment.
        LibraryFailed: the process failed or did not end.
    """
    python = ROOT / ENVIRONMENT / "bin" / "python"
    if not python.is_file():
        raise NotInstalled("sentence-transformers", ENVIRONMENT)
    job = {"model": str(checkpoint), "backend": backend, "texts": texts, "seconds": seconds}
    try:
        done = subprocess.run(
            [python, "-P", sentence_transformers_engine.__file__],
            input=json.dumps(job),
            env={**os.environ, **OFFLINE},
            capture_output=True,
            text=True,
            timeout=TIMEOUT + seconds,
        )
    except subprocess.TimeoutExpired:
        raise LibraryFailed(backend, f"it did not end within {TIMEOUT} s") from None
    if done.returncode:
        raise LibraryFailed(backend, done.stderr)
    return float(json.loads(done.stdout.splitlines()[-1]))
