"""The files that are served without TorchServe: what is there, and what has changed since.

This module imports nothing of `handlers`, as :mod:`hf_serve.hosts.archives` does not.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tarfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hf_serve.hosts.archives import (
    HOW_TO_PACK,
    MANIFEST,
    SUFFIXES,
    Archive,
    ArchiveError,
    import_from,
    open_archive,
)
from hf_serve.hosts.command_line import module_command

YAMLS = (".yaml", ".yml")
# How often folders are looked at.
POLL_SECONDS = 1.0
KIT = Path(__file__).resolve().parents[2]
# Where archives of YAML files are put, in the folder of the files.
PACKED = ".packed"
# Commands that make an archive of a YAML file.
DOWNLOAD, PACK = "hf_serve.scripts.download_models", "hf_serve.scripts.create_archive"

# What tells a file from another one of its name.
Stamp = tuple[int, int, int]


class NameTaken(ArchiveError):
    """Another file has a model of the same name."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(f"{path} has the model {name}, as another file has; remove one of them.")


@dataclass(frozen=True)
class Changes:
    """What has changed in folders.

    Attributes:
        written: files that are new or different, and are complete.
        removed: files that are gone.
    """

    written: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)


class ServedFiles:
    """Archives, and the archives and YAML files in folders.

    Args:
        paths: archives, packed or unpacked, and folders.
        model_name: the name of the only archive; by default that in its manifest.
        environment: the variables of the commands that download and pack.
    """

    def __init__(
        self, paths: Sequence[Path], model_name: str = "", environment: Mapping[str, str] = {}
    ) -> None:
        self._folders = [
            path for path in paths if path.is_dir() and not (path / MANIFEST).is_file()
        ]
        self._named = [path for path in paths if path not in self._folders]
        self._model_name, self._environment = model_name, environment
        self._before = self._known = self._stamps()

    @property
    def is_watched(self) -> bool:
        """Whether files can be added and removed."""
        return bool(self._folders)

    def paths(self) -> list[Path]:
        """Return the files and folders to load at the start.

        Raises:
            ArchiveError: there is none, or a name is given for several.
        """
        found = [*self._named, *self._known]
        if not found:
            folders = ", ".join(map(str, self._folders))
            raise ArchiveError(
                f"{folders} has no archives; {HOW_TO_PACK}, or put a YAML file there."
            )
        if self._model_name and len(found) > 1:
            raise ArchiveError("--model-name names one model, and there are several archives.")
        return found

    def known(self) -> list[Path]:
        """Return the files of the folders, as of the last change."""
        return list(self._known)

    def import_code(self) -> Archive:
        """Make this process import the `handlers` of the first archive with some, and return it.

        Without an archive, the process imports the `handlers` with which YAML files are packed.

        Raises:
            ArchiveError: there are no files, or no archive can be read.
        """
        errors = []
        for path in self.paths():
            if path.suffix in YAMLS:
                continue
            try:
                _, archive = self.open(path)
                import_from(archive.folder)
            except ArchiveError as error:
                errors.append(error)
                continue
            return archive
        if errors and len(errors) == len(self.paths()):
            raise errors[0]
        return Archive(KIT, "this kit", "", "")

    def open(self, path: Path) -> tuple[str, Archive]:
        """Return an archive, and the name under which it is served; a YAML file is packed first.

        Raises:
            ArchiveError: it cannot be read, or cannot be packed.
        """
        packed = self._pack(path) if path.suffix in YAMLS else path
        try:
            archive = open_archive(packed)
        except (OSError, tarfile.TarError, LookupError, TypeError) as error:
            raise ArchiveError(f"{path} is no archive of a model: {error}.") from None
        return self._model_name or archive.name, archive

    def changes(self) -> Changes:
        """Return what has changed since the last call that returned it.

        A file that is being written differs from one call to the next, and counts later.
        """
        now = self._stamps()
        written = [
            path
            for path, stamp in now.items()
            if stamp == self._before.get(path) and stamp != self._known.get(path)
        ]
        removed = [path for path in self._known if path not in now]
        self._before = now
        self._known = {path: stamp for path, stamp in self._known.items() if path in now}
        self._known |= {path: now[path] for path in written}
        return Changes(written, removed)

    async def follow(self, apply: Callable[[Changes], Awaitable[None]]) -> None:
        """Pass on what has changed, again and again, until the task is cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await apply(await asyncio.to_thread(self.changes))

    def _stamps(self) -> dict[Path, Stamp]:
        found = {}
        for path in sorted(each for folder in self._folders for each in _files_in(folder)):
            try:
                status = (path / MANIFEST if path.is_dir() else path).stat()
            except OSError:  # It was removed at this moment.
                continue
            found[path] = status.st_ino, status.st_size, status.st_mtime_ns
        return found

    def _pack(self, config: Path) -> Path:
        store = config.parent / PACKED
        store.mkdir(exist_ok=True)
        for module, *options in ([DOWNLOAD, config], [PACK, config, "--export-path", store]):
            done = subprocess.run(
                module_command(str(module), *options),
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                reason = done.stderr.strip() or f"{module} ended with {done.returncode}."
                raise ArchiveError(f"{config} cannot be packed. {' '.join(reason.split())}")
        return store / f"{config.stem}.mar"


def name_of(path: Path) -> str:
    """Return the name of the model of a file that cannot be read."""
    return path.name.removesuffix(".tar.gz") if path.name.endswith(".tar.gz") else path.stem


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the archives and YAML files in a folder, and the unpacked archives."""
    try:
        entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    except OSError:
        return
    for entry in entries:
        is_unpacked = entry.is_dir() and Path(entry.path, MANIFEST).is_file()
        if is_unpacked or entry.name.endswith((*SUFFIXES, *YAMLS)):
            yield Path(entry.path)
