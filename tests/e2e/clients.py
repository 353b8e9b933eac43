"""Running a program of `tests/clients/` against a server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_serve.scripts.installation import ROOT

PYTHON = ROOT / ".venv-clients" / "bin" / "python"
# That of the programs that need a framework, all of which are nightly.
FRAMEWORKS = ROOT / ".venv-frameworks" / "bin" / "python"
OLDER_CLIENTS = ROOT / ".venv-older-clients" / "bin" / "python"
SECONDS = 400
# The handler sets it in each process that imports it, in this one too; with it
# huggingface_hub's client sends no requests.
UNSET = {"HF_HUB_OFFLINE"}


def run_client(name: str, **job: Any) -> Any:
    """Run a client program with a job; returns the JSON that it prints."""
    return run_program(PYTHON, name, job)


def run_program(python: Path, name: str, job: Mapping[str, Any]) -> Any:
    """Run a client program in the environment of a Python executable."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    done = subprocess.run(
        [python, ROOT / "tests" / "clients" / f"{name}.py"],
        input=json.dumps(job),
        env={**kept, "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
