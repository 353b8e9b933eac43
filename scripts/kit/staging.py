"""The folder where a checkpoint is put together before it takes its place in one step."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from handlers.errors import ConfigError, KitError


class AlreadyRunning(KitError):
    """Another process puts the same checkpoint together."""

    def __init__(self, target: Path) -> None:
        super().__init__(f"Another command downloads to {target} now; wait until it is done.")


class InsufficientDiskSpace(KitError):
    """The files do not fit on the disk."""

    def __init__(self, place: Path, needed: int, free: int) -> None:
        super().__init__(
            f"{place} needs {needed / 1e6:,.0f} MB more and its disk has {free / 1e6:,.0f} MB;"
            " make room and run the command again."
        )


class Staging:
    """`.incomplete/<name>` beside a target; what a download left there is used by the next."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.parent / ".incomplete" / target.name
        self._aside = self.folder.with_name(f"{target.name}.replaced")

    @classmethod
    @contextmanager
    def open(cls, target: Path) -> Iterator[Staging]:
        """Open the staging folder of a target for this process alone; a refused model leaves none.

        Raises:
            AlreadyRunning: when another process has it open.
        """
        staging = cls(target)
        with staging._alone():
            staging._bring_back()
            staging.folder.mkdir(exist_ok=True)
            try:
                yield staging
            except ConfigError:
                shutil.rmtree(staging.folder)
                raise
            finally:
                staging._tidy()

    def check_free_space(self, needed: int) -> None:
        """Compare what is still to come with the free disk space.

        Raises:
            InsufficientDiskSpace: when it does not fit.
        """
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise InsufficientDiskSpace(self.folder, needed, free)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove what earlier tries, perhaps of another revision, have left."""
        for path in self.folder.iterdir():
            if path.name not in names:
                path.unlink()

    def install(self) -> None:
        """Move the folder to the target; a checkpoint that is there goes in the same step."""
        if self.target.exists():
            self.target.rename(self._aside)
        self.folder.rename(self.target)
        shutil.rmtree(self._aside, ignore_errors=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
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

    def _tidy(self) -> None:
        """Leave a folder only where there is something in it to go on from."""
        for path in self.folder.glob("*"):
            if not path.stat().st_size:
                path.unlink()
        with suppress(OSError):
            self.folder.rmdir()

    def _bring_back(self) -> None:
        """Undo an `install` that was killed between its two renames."""
        if self._aside.exists() and not self.target.exists():
            self._aside.rename(self.target)
        shutil.rmtree(self._aside, ignore_errors=True)
