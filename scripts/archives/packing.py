"""Pack a model archive from a YAML file, check that it loads, and install it in the model store."""

from __future__ import annotations

import errno
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from hf_serve.handlers.checkpoints.temperature_scaling import FILE as CALIBRATION
from hf_serve.handlers.checkpoints.temperature_scaling import CalibrationReport
from hf_serve.handlers.checkpoints.trial_results import FILE as TRIALS
from hf_serve.handlers.export.fidelity_report import FILE as QUALITY
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.formats import CHOICE_FILE, Choice
from hf_serve.scripts.archives.archive_formats import (
    ARCHIVE_FORMATS,
    ArchiveFormat,
    FormatName,
    is_current_mar,
)
from hf_serve.scripts.archives.contents import (
    HANDLERS,
    Contents,
    complete,
    contents,
    size_of,
    sources_of,
    sums_in,
    with_sums,
    with_trials,
)
from hf_serve.scripts.archives.load_check import SharedImports, TrialRecords, check_loads
from hf_serve.scripts.archives.model_store import versioned as versioned_name
from hf_serve.scripts.archives.pack_records import Packed, PackRecord, Snapshot
from hf_serve.scripts.archives.serving_defaults import Values
from hf_serve.scripts.hub.staging import InsufficientDiskSpace
from hf_serve.scripts.paths import BUILD, MODEL_STORE, build_key, build_of, model_name

# The file that a running command has locked in its folder of drafts.
LOCK = ".lock"


@dataclass(frozen=True)
class Archive:
    """A packed model.

    Attributes:
        made: false if an identical archive already existed and was kept.
        quality: how closely a lossy format matches the checkpoint; None for other formats.
        choice: the format that `save_mode: auto` is; None if the YAML names one.
        added: the keys of TorchServe that the packed YAML has and the other one leaves out.
        calibration: how far decisions can be trusted; None where that was not measured.
    """

    name: str
    path: Path
    size: int
    seconds: float
    made: bool
    quality: FidelityReport | None = None
    choice: Choice | None = None
    added: Values = field(default_factory=dict)
    calibration: CalibrationReport | None = None


def pack(
    config_path: Path,
    *,
    archive_format: FormatName = "mar",
    export_path: Path = MODEL_STORE,
    version: str = "1.0",
    versioned: bool = False,
    extra_files: Iterable[Path] = (),
    handlers: Path = HANDLERS,
    build: Path | None = None,
    force: bool = False,
    checked: bool = True,
    shared_imports: SharedImports | None = None,
    signing_key: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Archive:
    """Pack a model and everything it needs, replacing any existing archive.

    Its file has the name of the YAML, and with `versioned` its version, too: `NAME@VERSION.mar`.
    The archive is written to a temporary folder and, if `checked`, loaded in an isolated
    interpreter before it is installed, or in a fork of `shared_imports`; then it has what the
    trials at load have found, too. An
    identical .mar is kept unless `force` is set. Exports are kept below `build`: by default the
    `build` of the repository for its model store, and a hidden folder in any other `export_path`.
    With `signing_key`, an Ed25519 key in a PEM file, the sums of the files are signed.
    `on_progress` is called with the number of bytes written and the total.

    Raises:
        WrongConfig: the YAML file is invalid.
        WrongCheckpoint: the checkpoint is missing or incomplete.
        WrongPlace: a file has a name that an archive cannot have.
        FilesChanged: a file was written meanwhile; nothing is left of the archive.
        InsufficientDiskSpace: the disk is full; nothing is left of the archive.
        UnreadableKey: there is no key in the file of `signing_key`.
        ArchiveLoadError: the archive does not load; it is discarded.
    """
    started = time.monotonic()
    container = ARCHIVE_FORMATS[archive_format]
    name = model_name(config_path)
    stem = versioned_name(name, version) if versioned else name
    place = _Place(name, container, export_path / f"{stem}{container.suffix}", on_progress)
    source = _Source(config_path, version, tuple(extra_files), handlers, signing_key)
    record = PackRecord(build or BUILD, place.path, source.options)
    keeps = archive_format == "mar" and not force
    packed = record.read() if keeps else None
    made = False
    added: Values = {}
    if packed is None:
        inputs = source.inputs
        before = record.state(inputs)
        build = build or build_of(export_path)
        files, added = source.files(build)
        snapshot = Snapshot(each for each in files.values() if isinstance(each, Path))
        files = with_sums(files, signing_key)
        check = partial(check_loads, name=name, shared_imports=shared_imports)
        records = TrialRecords(build, build_key(config_path), sums_in(files))
        draft = _Draft(files, records, signing_key, snapshot)
        made, parts = draft.install(place, check if checked else None, keeps=keeps)
        packed = _packed(parts, place.path, records.path, build)
        if archive_format == "mar":
            record.write(before, inputs, packed)
    return Archive(
        name,
        place.path,
        packed.size,
        time.monotonic() - started,
        made,
        FidelityReport.read(packed.quality) if packed.quality else None,
        Choice.read(packed.choice) if packed.choice else None,
        added if made else {},
        CalibrationReport.read(packed.calibration) if packed.calibration else None,
    )


@dataclass(frozen=True)
class _Source:
    """What an archive is packed from."""

    config_path: Path
    version: str
    extra_files: tuple[Path, ...]
    handlers: Path
    signing_key: Path | None

    @property
    def _named(self) -> list[Path]:
        keys = [self.signing_key] if self.signing_key else []
        return [self.config_path, self.handlers, *self.extra_files, *keys]

    @property
    def options(self) -> list[object]:
        """What an earlier archive must have been packed with, to be kept."""
        return [Path.cwd(), self.version, self.signing_key is not None, *map(str, self._named)]

    @property
    def inputs(self) -> list[Path]:
        """The files and folders that decide what is packed."""
        return [path.absolute() for path in (*self._named, *sources_of(self.config_path))]

    def files(self, build: Path) -> tuple[Contents, Values]:
        """Return the files of the archive, and the keys that its YAML has in addition.

        The sums and the results of the trials at load are not among the files.
        """
        completed = complete(self.config_path)
        files = contents(
            self.config_path, self.version, self.extra_files, self.handlers, build, completed
        )
        return files, completed[1]


@dataclass(frozen=True)
class _Place:
    """Where an archive is installed, and how it is written."""

    name: str
    container: ArchiveFormat
    path: Path
    on_progress: Callable[[int, int], None]

    def write(self, draft: Path, parts: Contents) -> None:
        """Write an archive, and say in a sentence that the disk is full."""
        size = sum(map(size_of, parts.values()))
        try:
            self.container.write(draft, self.name, parts, _counter(size, self.on_progress))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            store = self.path.parent
            raise InsufficientDiskSpace(store, size, shutil.disk_usage(store).free) from None


@dataclass(frozen=True)
class _Draft:
    """An archive before it is installed.

    Attributes:
        untried: its files, without the results of the trials at load.
        records: the results of earlier trials.
        snapshot: the state of the files before their sums were computed.
    """

    untried: Contents
    records: TrialRecords
    signing_key: Path | None
    snapshot: Snapshot

    def install(
        self, place: _Place, check: Callable[[Path], bytes | None] | None, *, keeps: bool
    ) -> tuple[bool, Contents]:
        """Write an archive, check it, and install it; return whether it is new, and its files.

        Args:
            check: loads the unpacked archive, and returns what its trials found; None for no check.
            keeps: whether an identical archive stays as it is.
        """
        parts = self._with_trials(self.records.read())
        if keeps and is_current_mar(place.path, parts):
            return False, parts
        place.path.parent.mkdir(parents=True, exist_ok=True)
        with _scratch_folder(place.path.parent, place.path.name) as scratch:
            draft = scratch / place.path.name
            self._write(place, draft, parts)
            found = check(place.container.unpack(draft, scratch / "unpacked")) if check else None
            if found and found != parts.get(TRIALS):
                self.records.write(found)
                _remove(draft)
                parts = self._with_trials(found)
                self._write(place, draft, parts)
            _replace(draft, place.path, scratch)
        return True, parts

    def _write(self, place: _Place, draft: Path, parts: Contents) -> None:
        """Write an archive whose files have the sums that are in it."""
        try:
            place.write(draft, parts)
        finally:
            self.snapshot.check()

    def _with_trials(self, found: bytes | None) -> Contents:
        return with_trials(self.untried, found, self.signing_key)


def _packed(parts: Contents, target: Path, trials: Path, build: Path) -> Packed:
    """Return what a record has of an archive: its files, and what was made on the way."""
    files = [path.absolute() for path in parts.values() if isinstance(path, Path)]
    exports = {path.parent for path in files if path.is_relative_to(build.absolute())}
    made = {name: parts.get(name) for name in (QUALITY, CHOICE_FILE, CALIBRATION)}
    quality, choice, calibration = made.values()
    return Packed(
        outputs=[target.absolute(), trials.absolute(), *sorted(exports)],
        size=sum(map(size_of, parts.values())),
        quality=quality if isinstance(quality, Path) else None,
        choice=choice if isinstance(choice, Path) else None,
        calibration=calibration if isinstance(calibration, Path) else None,
    )


def _counter(total: int, on_progress: Callable[[int, int], None]) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    return advance


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft)
    else:
        draft.unlink()


def _replace(draft: Path, target: Path, scratch: Path) -> None:
    """Put an archive in its place; another command may do so meanwhile, and the last one stays."""
    for number in count():
        previous = scratch / f"previous-{number}"
        if target.is_dir():
            with suppress(FileNotFoundError):
                target.rename(previous)
        try:
            draft.replace(target)
            return
        except OSError:
            if target.is_dir():
                continue
            if previous.is_dir():
                previous.rename(target)
            raise


@contextmanager
def _scratch_folder(store: Path, name: str) -> Iterator[Path]:
    """Yield a new folder in a store, and remove folders that killed commands have left.

    It is hidden, so that a TorchServe that loads the whole store ignores it.
    """
    _remove_abandoned(store, name)
    with (
        # Another command may remove it, too, once the lock is free.
        TemporaryDirectory(prefix=f".{name}-", dir=store, ignore_cleanup_errors=True) as folder,
        FileLock(Path(folder, LOCK)),
    ):
        yield Path(folder)


def _remove_abandoned(store: Path, name: str) -> None:
    """Remove folders with drafts of an archive that no running command writes."""
    scratch = re.compile(rf"\.{re.escape(name)}-[a-z0-9_]{{8}}")
    for lock in store.glob(f".*/{LOCK}"):
        if scratch.fullmatch(lock.parent.name):
            with suppress(Timeout, OSError), FileLock(lock, timeout=0):
                shutil.rmtree(lock.parent)
