"""A model hub: what a repository holds at a commit, and each file fetched, resumed and verified.

The library's own `snapshot_download` keeps no part of a file that was cut off; here the part stays
and the next run asks for the rest only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import ModelInfo, RepoSibling
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from scripts.kit.hub_errors import DamagedFile, NotAHub, hub_errors

PATIENCE = 10.0  # seconds until a hub that does not answer counts as out of reach


@dataclass(frozen=True)
class RemoteFile:
    """A file as the hub describes it; large files have a SHA-256, small ones git's own hash."""

    name: str
    size: int
    git_hash: str
    sha256: str | None

    @property
    def digest(self) -> str:
        """The hash that tells this content from any other."""
        return self.sha256 or self.git_hash

    def partial_in(self, folder: Path) -> Path:
        """Return where the part that has arrived is kept."""
        return folder / f"{self.name}.{self.digest[:12]}.partial"

    def bytes_to_come(self, folder: Path) -> int:
        """Return how much of the file is not in a folder yet."""
        here = (folder / self.name, self.partial_in(folder))
        return self.size - max((path.stat().st_size for path in here if path.exists()), default=0)

    def is_at(self, path: Path) -> bool:
        """Whether the file at a path is this one, byte for byte."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        content_hash = hashlib.sha256() if self.sha256 else _git_hash(self.size)
        with path.open("rb") as content:
            while piece := content.read(1 << 20):
                content_hash.update(piece)
        return content_hash.hexdigest() == self.digest


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit."""

    model: str
    commit: str
    files: dict[str, RemoteFile]


class Hub:
    """The hub at `endpoint`; by default the one that HF_ENDPOINT names, or huggingface.co."""

    def __init__(self, endpoint: str | None = None) -> None:
        self._api = HfApi(endpoint=endpoint)
        self.endpoint = self._api.endpoint

    def snapshot(self, model: str, revision: str | None) -> Snapshot:
        """Resolve a revision to its commit and list the files there.

        Raises:
            HubError: when the hub or the model is out of reach.
            WrongConfig: when `model` cannot be the id of a model.
        """
        with hub_errors(self.endpoint, model, revision):
            info = self._model_info(model, revision)
        files = [_remote_file(sibling) for sibling in info.siblings or []]
        known = {file.name: file for file in files if file}
        if not info.sha or len(known) < len(files):
            raise NotAHub(self.endpoint)
        return Snapshot(model, info.sha, known)

    def fetch(self, snapshot: Snapshot, file: RemoteFile, folder: Path) -> Path:
        """Bring one file into a folder, from where an earlier try stopped; returns its path.

        Raises:
            HubError: when the hub is out of reach or the file arrives damaged.
            OSError: when it cannot be written.
        """
        path = folder / file.name
        if file.is_at(path):
            return path
        partial = file.partial_in(folder)
        try:
            self._continue(snapshot, file, partial)
        except OSError as error:
            if error.errno:
                raise
            # Without a number it is http_get's word for a wrong size, which the next line sees too.
        if not file.is_at(partial):
            partial.unlink()
            raise DamagedFile(snapshot.model, file.name)
        return partial.replace(path)

    def _model_info(self, model: str, revision: str | None) -> ModelInfo:
        try:
            return self._api.model_info(
                model, revision=revision, files_metadata=True, timeout=PATIENCE
            )
        except (JSONDecodeError, KeyError, TypeError) as error:
            raise NotAHub(self.endpoint) from error

    def _continue(self, snapshot: Snapshot, file: RemoteFile, partial: Path) -> None:
        url = hf_hub_url(
            snapshot.model, file.name, revision=snapshot.commit, endpoint=self.endpoint
        )
        # Compressed on the way, a file could not be resumed by counting bytes.
        headers = build_hf_headers() | {"Accept-Encoding": "identity"}
        with hub_errors(self.endpoint, snapshot.model, snapshot.commit), partial.open("ab") as sink:
            http_get(
                url,
                sink,
                resume_size=sink.tell(),
                headers=headers,
                expected_size=file.size,
                displayed_filename=file.name,
            )


def _git_hash(size: int) -> hashlib._Hash:
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def _remote_file(sibling: RepoSibling) -> RemoteFile | None:
    if sibling.size is None or sibling.blob_id is None:
        return None
    sha256 = sibling.lfs.sha256 if sibling.lfs else None
    return RemoteFile(sibling.rfilename, sibling.size, sibling.blob_id, sha256)
