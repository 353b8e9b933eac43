"""A staging folder in which a checkpoint is assembled before it replaces the target."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from hf_serve.handlers.errors import ConfigError, KitError


class AlreadyRunning(KitError):
    """Another process is downloading the same checkpoint."""

    def __init__(self, target: Path) -> None:
        super().__init__(f"Another command is downloading to {target}; wait until it has finished.")


class InsufficientDiskSpace(KitError):
    """There is not enough free disk space."""

    def __init__(self, path: Path, required: int, free: int) -> None:
        super().__init__(
            f"{path} needs {required / 1e6:,.0f} MB more and its disk has {free / 1e6:,.0f} MB;"
            " free disk space and run the command again."
        )


class Staging:
    """The folder `.incomplete/<name>` next to a target, kept between downloads to resume them."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.parent / ".incomplete" / target.name
        self._aside = self.folder.with_name(f"{target.name}.replaced")

    @classmethod
    @contextmanager
    def open(cls, target: Path) -> Iterator[Staging]:
        """Lock and create the staging folder of a target; it is removed if the model is rejected.

        Raises:
            AlreadyRunning: another process holds the lock.
        """
        staging = cls(target)
        with staging._lock():
            staging._recover()
            staging._make_folder()
            try:
                yield staging
            except ConfigError:
                shutil.rmtree(staging.folder)
                raise
            finally:
                staging._clean_up()

    def check_free_space(self, required: int) -> None:
        """Check that a number of bytes fits on the disk.

        Raises:
            InsufficientDiskSpace: it does not.
        """
        free = shutil.disk_usage(self.folder).free
        if required > free:
            raise InsufficientDiskSpace(self.folder, required, free)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all other files, such as partial downloads of another revision."""
        for path in [path for path in self.folder.rglob("*") if path.is_file()]:
            if path.relative_to(self.folder).as_posix() not in names:
                path.unlink()

    def install(self) -> None:
        """Move the folder to the target, replacing an existing checkpoint."""
        if self.target.exists():
            self.target.rename(self._aside)
        self.folder.rename(self.target)
        _remove(self._aside)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{self.folder}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise AlreadyRunning(self.target) from None
        try:
            yield
        finally:
            lock.release()

    def _clean_up(self) -> None:
        """Remove empty files, and the folder if nothing is left to resume."""
        for path in [path for path in self.folder.rglob("*") if path.is_file()]:
            if not path.stat().st_size:
                path.unlink()
        _remove_empty(self.folder)

    def _recover(self) -> None:
        """Restore the target if `install` was interrupted between its two renames."""
        if self._aside.exists() and not self.target.exists():
            self._aside.rename(self.target)
        _remove(self._aside)

    def _make_folder(self) -> None:
        """Create the folder, or keep the files of an existing one; symlinks are not followed."""
        if self.folder.is_symlink():
            self.folder.unlink()
        self.folder.mkdir(exist_ok=True)
        _remove_links(self.folder)


def _remove_links(folder: Path) -> None:
    """Remove symlinks and empty folders from a folder and those in it."""
    for path in folder.iterdir():
        if path.is_symlink():
            path.unlink()
        elif path.is_dir():
            _remove_links(path)
            _remove_empty(path)


def _remove_empty(folder: Path) -> None:
    """Remove a folder and those in it, where they have no files."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir():
            _remove_empty(path)
    with suppress(OSError):
        folder.rmdir()


def _remove(path: Path) -> None:
    """Remove a folder, or a symlink without what it names; there may be neither."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
