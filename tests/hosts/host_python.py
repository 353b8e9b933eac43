"""Running scripts, and the Python executable of Ray's environment, which `make test-ray` makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hf_serve.scripts.installation import ROOT

RAY_PYTHON = ROOT / ".venv-ray" / "bin" / "python"
SECONDS = 900


def run_script(python: Path, name: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run a script of `scripts/` in an environment."""
    return subprocess.run(
        [python, ROOT / "scripts" / f"{name}.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "COLUMNS": "300"},
    )


def run_successfully(python: Path, name: str, *arguments: Any) -> str:
    """Run a script that has to succeed; returns what it prints."""
    done = run_script(python, name, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
