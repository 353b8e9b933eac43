"""Whether an unpacked archive loads by itself, in an interpreter that knows nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from handlers.errors import ConfigError
from scripts.kit.tracebacks import last_error

PROGRAM = Path(__file__).with_name("load_isolated.py")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


class ArchiveLoadError(ConfigError):
    """An archive whose handler cannot be loaded; the text is the handler's own."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"the archive {name} was not kept, because it does not load: {reason}")


def check_loads(folder: Path, name: str) -> None:
    """Load an unpacked archive in a bare interpreter, as a worker of TorchServe would.

    Raises:
        ArchiveLoadError: with the last error of the handler.
    """
    folder = folder.resolve()
    # -I: neither this repository nor PYTHONPATH is in reach; -B: the folder stays as it is.
    loaded = subprocess.run(
        [sys.executable, "-I", "-B", str(PROGRAM), str(folder)],
        cwd=folder,
        env={**os.environ, **OFFLINE},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if loaded.returncode != 0:
        silent = f"its interpreter ended with code {loaded.returncode} and no error"
        raise ArchiveLoadError(name, last_error(loaded.stderr) or silent)
