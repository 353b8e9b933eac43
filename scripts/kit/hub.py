"""List the files of a model repository, and download each with resume and verification.

Unlike `snapshot_download` of huggingface_hub, an interrupted download keeps the partial file, and
the next run requests only the rest.
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

from scripts.kit.hub_errors import CorruptFile, NotAHub, hub_errors

TIMEOUT = 10.0  # seconds to wait for the hub's response


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository, with a git blob hash and, for large files, a SHA-256 hash."""

    name: str
    size: int
    git_hash: str
    sha256: str | None

    @property
    def digest(self) -> str:
        """The SHA-256 hash, or the git blob hash if there is none."""
        return self.sha256 or self.git_hash

    def partial_in(self, folder: Path) -> Path:
        """Return the path of the partial download."""
        return folder / f"{self.name}.{self.digest[:12]}.partial"

    def remaining_bytes(self, folder: Path) -> int:
        """Return the number of bytes that are still to be downloaded to a folder."""
        candidates = (folder / self.name, self.partial_in(folder))
        return self.size - max(
            (path.stat().st_size for path in candidates if path.exists()), default=0
        )

    def is_at(self, path: Path) -> bool:
        """Return whether the file at a path has this size and hash."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        content_hash = hashlib.sha256() if self.sha256 else _git_hash(self.size)
        with path.open("rb") as content:
            while chunk := content.read(1 << 20):
                content_hash.update(chunk)
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
        """Resolve a revision to a commit and list its files.

        Raises:
            HubError: the hub or the model is not available.
            WrongConfig: `model` is not a valid model id.
        """
        with hub_errors(self.endpoint, model, revision):
            info = self._model_info(model, revision)
        files = [_remote_file(sibling) for sibling in info.siblings or []]
        known = {file.name: file for file in files if file}
        if not info.sha or len(known) < len(files):
            raise NotAHub(self.endpoint)
        return Snapshot(model, info.sha, known)

    def fetch(self, snapshot: Snapshot, file: RemoteFile, folder: Path) -> Path:
        """Download a file to a folder, resuming a partial download; return its path.

        Raises:
            HubError: the hub is not available or the downloaded file is corrupt.
            OSError: the file cannot be written.
        """
        path = folder / file.name
        if file.is_at(path):
            return path
        partial = file.partial_in(folder)
        try:
            self._resume(snapshot, file, partial)
        except OSError as error:
            if error.errno:
                raise
            # Without an errno this is http_get reporting a wrong size, which is_at checks below.
        if not file.is_at(partial):
            partial.unlink()
            raise CorruptFile(snapshot.model, file.name)
        return partial.replace(path)

    def _model_info(self, model: str, revision: str | None) -> ModelInfo:
        try:
            return self._api.model_info(
                model, revision=revision, files_metadata=True, timeout=TIMEOUT
            )
        except (JSONDecodeError, KeyError, TypeError) as error:
            raise NotAHub(self.endpoint) from error

    def _resume(self, snapshot: Snapshot, file: RemoteFile, partial: Path) -> None:
        url = hf_hub_url(
            snapshot.model, file.name, revision=snapshot.commit, endpoint=self.endpoint
        )
        # A compressed transfer cannot be resumed by byte offset.
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
