"""The Python executable of the environment with Ray, which `make test-ray` makes."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from scripts.kit.places import ROOT

RAY_PYTHON = ROOT / ".venv-ray" / "bin" / "python"


def run_script(
    name: str, *arguments: Any, seconds: float = 900
) -> subprocess.CompletedProcess[str]:
    """Run a script of `scripts/` in the environment with Ray."""
    return subprocess.run(
        [RAY_PYTHON, ROOT / "scripts" / f"{name}.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "COLUMNS": "300"},
    )


def run_successfully(name: str, *arguments: Any) -> str:
    """Run a script that has to succeed; returns what it prints."""
    done = run_script(name, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
