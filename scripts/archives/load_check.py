"""Check that an unpacked archive loads in an isolated Python interpreter."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from hf_serve.handlers.checkpoints.trial_results import FILE as TRIALS
from hf_serve.handlers.errors import ConfigError
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.hosts.tracebacks import last_error

PROGRAM = Path(__file__).with_name("load_isolated.py")


class ArchiveLoadError(ConfigError):
    """The handler of an archive failed to load; `reason` is its error message."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"the archive {name} was discarded because it does not load: {reason}")


def check_loads(folder: Path, name: str) -> bytes | None:
    """Load an unpacked archive in an isolated interpreter, as a TorchServe worker would.

    Returns:
        What the trials at load have found, for `trials.json`; None for a handler without it.

    Raises:
        ArchiveLoadError: the handler raised an error, which becomes the reason.
    """
    folder = folder.resolve()
    # -I hides this repository and PYTHONPATH; -B writes no bytecode into the folder.
    with TemporaryDirectory() as scratch:
        trials = Path(scratch) / TRIALS
        process = subprocess.run(
            [sys.executable, "-I", "-B", str(PROGRAM), str(folder), str(trials)],
            cwd=folder,
            env={**os.environ, **OFFLINE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if process.returncode != 0:
            fallback = f"its interpreter exited with code {process.returncode} and no traceback"
            raise ArchiveLoadError(name, last_error(process.stderr) or fallback)
        return trials.read_bytes() if trials.is_file() else None


class TrialRecords:
    """What the trials of a model's load check have found, kept below `trials/` of a build.

    A later archive of the same files has the same record.

    Args:
        sums: the sums of the files of the archive, without the record.
    """

    def __init__(self, build: Path, name: str, sums: bytes) -> None:
        self._folder = build / "trials"
        self._name, digest = name, hashlib.sha256(sums).hexdigest()
        self.path = self._folder / f"{name}.{digest}.json"

    def read(self) -> bytes | None:
        """Return the record; None if no archive of these files was loaded."""
        return self.path.read_bytes() if self.path.is_file() else None

    def write(self, record: bytes) -> None:
        """Keep a record, and remove the records of other files."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.glob(f"{self._name}.*.json"):
            path.unlink(missing_ok=True)
        self.path.write_bytes(record)
