"""Pack a model archive from a YAML file, check that it loads, and install it in the model store."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory

from handlers.export.parity_report import FILE as QUALITY
from handlers.export.parity_report import ParityReport
from handlers.formats import CHOICE_FILE, Choice
from scripts.kit.archive_contents import HANDLERS, Contents, contents, size_of, with_sums
from scripts.kit.archive_formats import ARCHIVE_FORMATS, ArchiveFormat, FormatName, is_current_mar
from scripts.kit.load_check import check_loads
from scripts.kit.places import BUILD, MODEL_STORE, model_name
from scripts.kit.staging import InsufficientDiskSpace
from scripts.kit.versions import versioned as versioned_name


@dataclass(frozen=True)
class Archive:
    """A packed model.

    Attributes:
        made: false if an identical archive already existed and was kept.
        quality: how closely a lossy format matches the checkpoint; None for other formats.
        choice: the format that `save_mode: auto` is; None if the YAML names one.
    """

    name: str
    path: Path
    size: int
    seconds: float
    made: bool
    quality: ParityReport | None = None
    choice: Choice | None = None


def pack(
    config_path: Path,
    *,
    archive_format: FormatName = "mar",
    export_path: Path = MODEL_STORE,
    version: str = "1.0",
    versioned: bool = False,
    extra_files: Iterable[Path] = (),
    handlers: Path = HANDLERS,
    build: Path = BUILD,
    force: bool = False,
    checked: bool = True,
    signing_key: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Archive:
    """Pack a model and everything it needs, replacing any existing archive.

    Its file has the name of the YAML, and with `versioned` its version, too: `NAME@VERSION.mar`.
    The archive is written to a temporary folder and, if `checked`, loaded in an isolated
    interpreter before it is installed. An identical .mar is kept unless `force` is set. Exports are
    kept below `build`.
    With `signing_key`, an Ed25519 key in a PEM file, the sums of the files are signed.
    `on_progress` is called with the number of bytes written and the total.

    Raises:
        WrongConfig: the YAML file is invalid.
        WrongCheckpoint: the checkpoint is missing or incomplete.
        InsufficientDiskSpace: the disk is full; nothing is left of the archive.
        UnreadableKey: there is no key in the file of `signing_key`.
        ArchiveLoadError: the archive does not load; it is discarded.
    """
    started = time.monotonic()
    name, container = model_name(config_path), ARCHIVE_FORMATS[archive_format]
    parts = with_sums(contents(config_path, version, extra_files, handlers, build), signing_key)
    stem = versioned_name(name, version) if versioned else name
    target, size = export_path / f"{stem}{container.suffix}", sum(map(size_of, parts.values()))
    made = force or archive_format != "mar" or not is_current_mar(target, parts)
    if made:
        export_path.mkdir(parents=True, exist_ok=True)
        # Hidden, so that a TorchServe that loads the whole store ignores it.
        with TemporaryDirectory(prefix=f".{name}-", dir=export_path) as scratch:
            draft = Path(scratch) / target.name
            _write(container, draft, name, parts, _counter(size, on_progress))
            if checked:
                check_loads(container.unpack(draft, Path(scratch) / "unpacked"), name)
            _replace(draft, target, Path(scratch))
    quality, choice = parts.get(QUALITY), parts.get(CHOICE_FILE)
    return Archive(
        name,
        target,
        size,
        time.monotonic() - started,
        made,
        ParityReport.read(quality) if isinstance(quality, Path) else None,
        Choice.read(choice) if isinstance(choice, Path) else None,
    )


def _counter(total: int, on_progress: Callable[[int, int], None]) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    return advance


def _write(
    container: ArchiveFormat,
    draft: Path,
    name: str,
    parts: Contents,
    advance: Callable[[int], None],
) -> None:
    """Write an archive, and say in a sentence that the disk is full."""
    try:
        container.write(draft, name, parts, advance)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        size, store = sum(map(size_of, parts.values())), draft.parents[1]
        raise InsufficientDiskSpace(store, size, disk_usage(store).free) from None


def _replace(draft: Path, target: Path, scratch: Path) -> None:
    if target.is_dir():
        target.rename(scratch / "previous")
    draft.replace(target)
