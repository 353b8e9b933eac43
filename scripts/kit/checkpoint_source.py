"""Where a checkpoint came from: the `.source.json` beside its files."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from handlers.config.handler_section import HandlerSection

FILE = ".source.json"


class Source(BaseModel):
    """A model, the revision that was asked for, the commit it stood for, and each file's size."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_name: str
    revision: str | None
    commit: str
    files: dict[str, int]

    @classmethod
    def read(cls, folder: Path) -> Source | None:
        """Return a folder's source; None when it says none that can be read."""
        try:
            return cls.model_validate_json((folder / FILE).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, folder: Path) -> None:
        """Lay the source down beside the files."""
        (folder / FILE).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @property
    def size(self) -> int:
        """Bytes in all files together."""
        return sum(self.files.values())

    def matches(self, handler: HandlerSection) -> bool:
        """Whether this is the model and the revision that a YAML names."""
        asked = handler.revision
        pinned = asked is not None and self.commit.startswith(asked)
        return self.model_name == handler.model_name and (pinned or asked == self.revision)

    def is_complete_in(self, folder: Path) -> bool:
        """Whether every file is in the folder with its size."""
        paths = {folder / name: size for name, size in self.files.items()}
        return all(path.is_file() and path.stat().st_size == paths[path] for path in paths)
