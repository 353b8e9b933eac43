"""What the trials of each model's load check have found, kept below `trials/` of a build."""

from __future__ import annotations

import hashlib
from pathlib import Path


class TrialRecords:
    """The record of one model: a later archive of the same files has the same.

    Args:
        build: the folder that builds are kept in.
        name: the name of the model's builds.
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
        """Keep a record in the place of those of other files."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.glob(f"{self._name}.*.json"):
            path.unlink(missing_ok=True)
        self.path.write_bytes(record)
