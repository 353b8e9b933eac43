"""Check that an unpacked archive loads in an isolated Python interpreter."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hf_serve.handlers.checkpoints.trial_results import FILE as TRIALS
from hf_serve.handlers.errors import ConfigError
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.hosts.fork_server.start import COMMON_PACKAGES
from hf_serve.hosts.tracebacks import last_error

PROGRAM = Path(__file__).with_name("load_isolated.py")
FORKING = Path(__file__).with_name("load_forked.py")


class ArchiveLoadError(ConfigError):
    """The handler of an archive failed to load; `reason` is its error message."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"the archive {name} was discarded because it does not load: {reason}")


def check_loads(
    folder: Path, name: str, shared_imports: SharedImports | None = None
) -> bytes | None:
    """Load an unpacked archive in an isolated interpreter, as a TorchServe worker would.

    Args:
        shared_imports: the interpreter that loads the archive in a fork, if it can; None to start
            one for this archive alone.

    Returns:
        What the trials at load have found, for `trials.json`; None for a handler without it.

    Raises:
        ArchiveLoadError: the handler raised an error, which becomes the reason.
    """
    folder = folder.resolve()
    with TemporaryDirectory() as scratch:
        trials, errors = Path(scratch) / TRIALS, Path(scratch) / "errors.txt"
        errors.touch()
        code = shared_imports.load(folder, trials, errors) if shared_imports else None
        if code is None:
            code = _load_alone(folder, trials, errors)
        if code != 0:
            fallback = f"its interpreter exited with code {code} and no traceback"
            found = errors.read_text(encoding="utf-8", errors="replace")
            raise ArchiveLoadError(name, last_error(found) or fallback)
        return trials.read_bytes() if trials.is_file() else None


def _load_alone(folder: Path, trials: Path, errors: Path) -> int:
    with errors.open("wb") as stderr:
        return subprocess.run(
            [*_command(PROGRAM), str(folder), str(trials)],
            cwd=folder,
            env={**os.environ, **OFFLINE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        ).returncode


def _command(program: Path) -> list[str]:
    # -I hides this repository and PYTHONPATH; -B writes no bytecode into the folder.
    return [sys.executable, "-I", "-B", str(program)]


class SharedImports:
    """An isolated interpreter that has imported packages, and loads each archive in a fork.

    It starts with the first archive.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._process: subprocess.Popen[str] | None = None
        self._environment: dict[str, str] = {}

    def load(self, folder: Path, trials: Path, errors: Path) -> int | None:
        """Load an archive, and return the exit code; None if this interpreter cannot do it."""
        environment = {**os.environ, **OFFLINE}
        if self._process is None:
            self._environment = environment
            self._process = subprocess.Popen(
                [*_command(FORKING), *self._modules],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        process = self._process
        if environment != self._environment or not process.stdin or not process.stdout:
            return None
        try:
            process.stdin.write(f"{json.dumps([*map(str, (folder, trials, errors))])}\n")
            process.stdin.flush()
        except OSError:  # It has ended, as it cannot be forked or a package cannot be imported.
            return None
        answer = process.stdout.readline()
        return int(answer) if answer else None

    def end(self) -> None:
        """End the interpreter."""
        if self._process is not None:
            with suppress(OSError):
                self._process.communicate()


@contextmanager
def share_imports(modules: Sequence[str] = COMMON_PACKAGES) -> Iterator[SharedImports | None]:
    """Have the checks of several archives import packages once; None where that is not possible.

    Args:
        modules: what most models need; the rest is imported in each fork.
    """
    if sys.platform != "linux":
        yield None
        return
    shared_imports = SharedImports(modules)
    try:
        yield shared_imports
    finally:
        shared_imports.end()


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
        # Another process that packs the same files reads all of it, or nothing.
        draft = self._folder / f".{self._name}.{os.getpid()}"
        draft.write_bytes(record)
        draft.replace(self.path)
