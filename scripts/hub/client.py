"""List the files of a model repository, and download each with resume and verification.

Unlike `snapshot_download` of huggingface_hub, an interrupted download keeps the partial file, and
the next run requests only the rest. What an endpoint says is checked before anything is written:
names, sizes and hashes become paths and limits.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import HFValidationError
from huggingface_hub.hf_api import ModelInfo, RepoSibling
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
from pydantic import BaseModel, ConfigDict, NonNegativeInt, StringConstraints, ValidationError

from hf_serve.handlers.compat.huggingface_hub import resume_download
from hf_serve.scripts.hub.errors import CorruptFile, NotAHub, UnsafeListing, hub_errors

TIMEOUT = 10.0  # seconds to wait for the hub's response
MAX_NAME = 255  # bytes; no common file system has longer names
FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\]|^[A-Za-z]:")

Sha1 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class RemoteFile(BaseModel):
    """A file of a repository, with a git blob hash and, for large files, a SHA-256 hash."""

    model_config = ConfigDict(strict=True, frozen=True)

    name: str
    size: NonNegativeInt
    git_hash: Sha1
    sha256: Sha256 | None

    @property
    def digest(self) -> str:
        """The SHA-256 hash, or the git blob hash if there is none."""
        return self.sha256 or self.git_hash

    def partial_in(self, folder: Path) -> Path:
        """Return the path of the partial download."""
        name = self.name.replace("/", ".")
        return folder / f"{name[:50]}.{self.digest[:12]}.partial"

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
        content_hash = hashlib.sha256()
        if not self.sha256:  # The digest is Git's own.
            content_hash = hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        with path.open("rb") as content:
            while chunk := content.read(1 << 20):
                content_hash.update(chunk)
        return content_hash.hexdigest() == self.digest


class Snapshot(BaseModel):
    """A repository at one commit, with the files at its root and in the folders there.

    A checkpoint has its files at the root, or in a folder for each of its parts. `hub_task` is the
    task that the hub lists it under, its `pipeline_tag`.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    model: str
    commit: Sha1
    files: dict[str, RemoteFile]
    hub_task: str | None = None


class BoundedFile(io.BufferedWriter):
    """A file that is appended to, up to a number of bytes."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(io.FileIO(path, "ab"))
        self._limit = limit

    def write(self, data: Any) -> int:
        """Write all of the data, or nothing if the file would be too long.

        Raises:
            OSError: without an errno, if the file would be too long.
        """
        if self.tell() + len(data) > self._limit:
            raise OSError(f"{self.name} would be longer than {self._limit} bytes")
        return super().write(data)


class Hub:
    """The hub at `endpoint`; by default the one that HF_ENDPOINT names, or huggingface.co."""

    def __init__(self, endpoint: str | None = None) -> None:
        self._api = HfApi(endpoint=endpoint)
        self.endpoint = self._api.endpoint

    def snapshot(self, model: str, revision: str | None) -> Snapshot:
        """Resolve a revision to a commit and list its files, without those in deeper folders.

        Raises:
            HubError: the hub or the model is not available, or the listing is not of a repository.
            WrongConfig: `model` is not a valid model id.
        """
        with hub_errors(self.endpoint, model, revision):
            info = self._model_info(model, revision)
        siblings = info.siblings or []
        unsafe = next((each for each in siblings if not _is_path(each.rfilename)), None)
        if unsafe:
            raise UnsafeListing(self.endpoint, model, unsafe.rfilename)
        files = [each for each in siblings if each.rfilename.count("/") <= 1]
        if len({each.rfilename for each in files}) < len(files):
            raise NotAHub(self.endpoint)
        try:
            return _snapshot(model, info.sha, files, info.pipeline_tag)
        except ValidationError as error:
            raise NotAHub(self.endpoint) from error

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
            # Without an errno it is about a wrong size, which is_at checks below.
        if not file.is_at(partial):
            partial.unlink()
            raise CorruptFile(snapshot.model, file.name)
        path.parent.mkdir(exist_ok=True)
        return partial.replace(path)

    def _model_info(self, model: str, revision: str | None) -> ModelInfo:
        try:
            return self._api.model_info(
                model, revision=revision, files_metadata=True, timeout=TIMEOUT
            )
        except HFValidationError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise NotAHub(self.endpoint) from error

    def _resume(self, snapshot: Snapshot, file: RemoteFile, partial: Path) -> None:
        url = hf_hub_url(
            snapshot.model, file.name, revision=snapshot.commit, endpoint=self.endpoint
        )
        # A compressed transfer cannot be resumed by byte offset.
        headers = build_hf_headers() | {"Accept-Encoding": "identity"}
        with (
            hub_errors(self.endpoint, snapshot.model, snapshot.commit),
            BoundedFile(partial, file.size) as sink,
        ):
            resume_download(url, sink, headers=headers, size=file.size, name=file.name)


def _is_path(name: Any) -> bool:
    """Return whether a name is a relative path that stays below its root on every platform."""
    if not isinstance(name, str) or FORBIDDEN.search(name):
        return False
    return all(
        part not in ("", ".", "..") and len(part.encode()) <= MAX_NAME for part in name.split("/")
    )


def _snapshot(
    model: str, commit: str | None, siblings: Iterable[RepoSibling], hub_task: str | None
) -> Snapshot:
    files = {
        each.rfilename: {
            "name": each.rfilename,
            "size": each.size,
            "git_hash": each.blob_id,
            "sha256": each.lfs.sha256 if each.lfs else None,
        }
        for each in siblings
    }
    return Snapshot.model_validate(
        {"model": model, "commit": commit, "files": files, "hub_task": hub_task}
    )
