"""A model repository as the hub keeps it: folders under commit hashes, `main` on the newest."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

LARGE = (".safetensors", ".bin", ".model", ".h5", ".onnx", ".msgpack")


TASK = re.compile(r"^pipeline_tag: (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class StoredFile:
    """A file and the hashes under which the hub knows it; large ones are in Git LFS."""

    name: str
    path: Path
    size: int
    git_hash: str
    sha256: str | None

    @classmethod
    def of(cls, path: Path, root: Path) -> StoredFile:
        """Read a file of the folder `root`."""
        content, name = path.read_bytes(), path.relative_to(root).as_posix()
        sha256 = hashlib.sha256(content).hexdigest() if name.endswith(LARGE) else None
        git_hash = _sha1(b"blob %d\0" % len(content) + content)
        return cls(name, path, len(content), git_hash, sha256)

    @property
    def etag(self) -> str:
        """The hash that the hub sends as ETag."""
        return self.sha256 or self.git_hash

    def as_sibling(self) -> dict[str, Any]:
        """Return the entry of the file as `/api/models/{id}?blobs=true` does."""
        shown = {"rfilename": self.name, "size": self.size, "blobId": self.git_hash}
        lfs = {"sha256": self.sha256, "size": self.size, "pointerSize": 130}
        return shown | ({"lfs": lfs} if self.sha256 else {})

    def as_tree_entry(self) -> dict[str, Any]:
        """Return the entry of the file as `/api/models/{id}/tree/{revision}` does."""
        shown = {"type": "file", "path": self.name, "size": self.size, "oid": self.git_hash}
        lfs = {"oid": self.sha256, "size": self.size, "pointerSize": 130}
        return shown | ({"lfs": lfs} if self.sha256 else {})


@dataclass
class Repository:
    """Commits, oldest first; a commit's hash follows from its files."""

    gated: bool = False
    commits: dict[str, dict[str, StoredFile]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def push(self, folder: Path) -> str:
        """Add a folder as the newest commit; returns the commit's hash."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = [StoredFile.of(path, folder) for path in paths]
        listing = "\n".join(f"{file.etag} {file.name}" for file in files)
        commit = _sha1(listing.encode())
        self.commits[commit] = {file.name: file for file in files}
        return commit

    def add(self, name: Any, path: Path, **announced: Any) -> None:
        """List a file under a name or with facts that no folder could have, as a hostile hub does.

        Args:
            name: the file's name in the listing of the newest commit.
            path: the content.
            announced: fields of StoredFile that are not those of the content.
        """
        files = self.commits[next(reversed(self.commits))]
        files[name] = replace(StoredFile.of(path, path.parent), name=name, **announced)

    def hub_task(self, commit: str) -> str | None:
        """Return the task in the model card of a commit, which the hub announces."""
        card = self.commits[commit].get("README.md")
        found = TASK.search(card.path.read_text(encoding="utf-8")) if card else None
        return found[1] if found else None

    def resolve(self, revision: str) -> str | None:
        """Return the commit of a tag, of `main`, of a hash or of the first 7 or more digits."""
        if revision in self.tags:
            return self.tags[revision]
        if revision == "main":
            return next(reversed(self.commits))
        found = [commit for commit in self.commits if commit.startswith(revision)]
        return found[0] if len(revision) >= 7 and found else None


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
