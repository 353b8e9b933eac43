"""From a YAML to an archive in the model store: whole, loaded once, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from handlers.export.parity_report import FILE as QUALITY
from handlers.export.parity_report import ParityReport
from scripts.kit.archive_contents import HANDLERS, contents, size_of
from scripts.kit.archive_formats import ARCHIVE_FORMATS, FormatName, is_current_mar
from scripts.kit.load_check import check_loads
from scripts.kit.places import MODEL_STORE, model_name


@dataclass(frozen=True)
class Archive:
    """A packed model.

    `made` is false where the same bytes were there already; `quality` says how well a lossy
    format agrees with the checkpoint.
    """

    name: str
    path: Path
    size: int
    seconds: float
    made: bool
    quality: ParityReport | None = None


def pack(
    config_path: Path,
    *,
    archive_format: FormatName = "mar",
    export_path: Path = MODEL_STORE,
    version: str = "1.0",
    extra_files: Iterable[Path] = (),
    handlers: Path = HANDLERS,
    force: bool = False,
    checked: bool = True,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Archive:
    """Pack a YAML's model with everything that it needs, and put it in place of an older one.

    The archive is written beside its place and loaded by a bare interpreter before it takes it. A
    .mar that would not change stays, unless `force`. `on_progress` gets bytes done and in all.

    Raises:
        WrongConfig: when the YAML is wrong.
        WrongCheckpoint: when its checkpoint is missing or not whole.
        ArchiveLoadError: when the archive does not load; nothing is kept of it.
    """
    began = time.monotonic()
    name, container = model_name(config_path), ARCHIVE_FORMATS[archive_format]
    parts = contents(config_path, version, extra_files, handlers)
    target, size = export_path / f"{name}{container.suffix}", sum(map(size_of, parts.values()))
    made = force or archive_format != "mar" or not is_current_mar(target, parts)
    if made:
        export_path.mkdir(parents=True, exist_ok=True)
        # Hidden, so that a TorchServe that loads all of the store passes it by.
        with TemporaryDirectory(prefix=f".{name}-", dir=export_path) as scratch:
            draft = Path(scratch) / target.name
            container.write(draft, name, parts, _counter(size, on_progress))
            if checked:
                check_loads(container.unpack(draft, Path(scratch) / "unpacked"), name)
            _put(draft, target, Path(scratch))
    quality = parts.get(QUALITY)
    measured = ParityReport.read(quality) if isinstance(quality, Path) else None
    return Archive(name, target, size, time.monotonic() - began, made, measured)


def _counter(total: int, on_progress: Callable[[int, int], None]) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    return advance


def _put(draft: Path, target: Path, scratch: Path) -> None:
    if target.is_dir():
        target.rename(scratch / "before")
    draft.replace(target)
