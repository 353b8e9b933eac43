"""What each archive was packed from, so that one that would not change is found without reading it.

A file is known by its size, its times and its inode, as git knows the files of a checkout. A record
that does not fit any more costs nothing but the comparison of contents.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from site import getsitepackages

from pydantic import BaseModel, ConfigDict, ValidationError

from hf_serve.handlers.checkpoints.dtypes import cpu_flags
from hf_serve.handlers.errors import KitError

DEVICES = Path("/dev")
ACCELERATORS = ("nvidia*", "kfd", "neuron*", "dri/*", "accel*")
# Variables that change what is packed.
VARIABLES = (
    "SOURCE_DATE_EPOCH",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NEURON_RT_VISIBLE_CORES",
    "NEURON_RT_NUM_CORES",
)
IGNORED = frozenset({"__pycache__"})
# A file that was written this shortly before a record could change again under the same times.
SETTLED_NS = 50_000_000


class Packed(BaseModel):
    """What came of packing an archive.

    Attributes:
        outputs: the archive, and the files and folders that were made on the way.
        size: the bytes of the files in the archive.
        quality: the file with the quality of an export; None without one.
        choice: the file with the choice of `save_mode: auto`; None without one.
        calibration: the file with the calibration of decisions; None without one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    outputs: list[Path]
    size: int
    quality: Path | None
    choice: Path | None
    calibration: Path | None = None


class _Kept(BaseModel):
    """The content of a record: what was packed, of what, and the state of both."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    inputs: list[Path]
    state: str
    packed: Packed


@dataclass(frozen=True)
class PackRecord:
    """The record of one archive."""

    build: Path
    target: Path
    options: Sequence[object]

    def read(self) -> Packed | None:
        """Return what was packed, if nothing has changed since."""
        try:
            kept = _Kept.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return None
        now = self.state([*kept.inputs, *kept.packed.outputs])
        return kept.packed if now == kept.state else None

    def write(self, before: str, inputs: Sequence[Path], packed: Packed) -> None:
        """Keep what was packed, unless its files have changed meanwhile.

        Args:
            before: the state of the inputs before they were read.
        """
        self._path.unlink(missing_ok=True)
        if self.state(inputs) != before or _newest(inputs) > time.time_ns() - SETTLED_NS:
            return
        state = self.state([*inputs, *packed.outputs])
        kept = _Kept(inputs=list(inputs), state=state, packed=packed)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._remove_others()
        draft = self._path.with_suffix(f".{os.getpid()}")
        draft.write_text(kept.model_dump_json(), encoding="utf-8")
        draft.replace(self._path)

    def state(self, paths: Iterable[Path]) -> str:
        """Return a digest of the state of files and folders, of the options and of this machine."""
        digest = hashlib.sha256(f"{self.options!r} {_machine()!r}".encode())
        for path in paths:
            for each in _walk(path):
                digest.update(os.fsencode(_stamp(each)))
        return digest.hexdigest()

    def _remove_others(self) -> None:
        """Remove records of archives that are gone."""
        for path in self._path.parent.glob("*.json"):
            with suppress(OSError, ValidationError):
                if not _Kept.model_validate_json(path.read_bytes()).packed.outputs[0].exists():
                    path.unlink()

    @property
    def _path(self) -> Path:
        key = hashlib.sha256(str(self.target.resolve()).encode()).hexdigest()[:16]
        return self.build / "packed" / f"{self.target.name}.{key}.json"


class FilesChanged(KitError):
    """A file was written while it was packed."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was changed while it was packed; pack again once nothing writes to it."
        )


class Snapshot:
    """The state of files before they are read, to find out later whether they have changed."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._stamps = {path: _stamp(path) for path in files}

    def check(self) -> None:
        """Check that no file has changed.

        Raises:
            FilesChanged: one has.
        """
        for path, stamp in self._stamps.items():
            if _stamp(path) != stamp:
                raise FilesChanged(path)


def _walk(path: Path) -> Iterator[Path]:
    """Yield a path and, of a folder, what is in it.

    Links to folders are followed, as packing does, unless they lead to a folder that they are in.
    """
    yield path
    if path.is_dir():
        for each in sorted(path.iterdir()):
            if each.name in IGNORED:
                continue
            if each.is_symlink() and each.parent.resolve().is_relative_to(each.resolve()):
                yield each
            else:
                yield from _walk(each)


def _stamp(path: Path) -> str:
    """Return what changes with a file; of a folder, its name."""
    try:
        found = path.stat()
    except OSError:
        return f"{path} is missing\n"
    if path.is_dir():
        return f"{path}\n"
    numbers = found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
    return f"{path} {numbers}\n"


def _newest(paths: Iterable[Path]) -> int:
    files = (each for path in paths for each in _walk(path) if each.is_file())
    return max((each.stat().st_ctime_ns for each in files), default=0)


def _machine() -> tuple[object, ...]:
    """Return what decides, in addition to the files, how a model is exported here."""
    devices = sorted(str(path) for name in ACCELERATORS for path in DEVICES.glob(name))
    variables = [os.environ.get(name) for name in VARIABLES]
    # A package that is installed or removed changes the time of its folder.
    packages = [(path, Path(path).stat().st_mtime_ns) for path in getsitepackages()]
    return sys.version, sorted(cpu_flags()), devices, variables, packages
