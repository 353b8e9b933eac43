"""The origin of a downloaded checkpoint, stored as `.source.json` in its folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

FILE = ".source.json"


class Source(BaseModel):
    """The model, the requested revision, its commit, and the size of each file."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_name: str
    revision: str | None
    commit: str
    files: dict[str, int]

    @classmethod
    def read(cls, folder: Path) -> Source | None:
        """Read the source of a folder; None if it is missing or invalid."""
        try:
            return cls.model_validate_json((folder / FILE).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, folder: Path) -> None:
        """Write the source file into a folder."""
        (folder / FILE).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(self.files.values())

    def matches(self, model_name: str | None, revision: str | None) -> bool:
        """Return whether this is a model and a revision of it."""
        pinned = revision is not None and self.commit.startswith(revision)
        return self.model_name == model_name and (pinned or revision == self.revision)

    def is_complete_in(self, folder: Path) -> bool:
        """Return whether a folder contains every file with the expected size."""
        sizes = {folder / name: size for name, size in self.files.items()}
        return all(path.is_file() and path.stat().st_size == sizes[path] for path in sizes)
