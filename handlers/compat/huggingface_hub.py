"""What is undocumented in huggingface_hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

from huggingface_hub.file_download import http_get


def resume_download(
    url: str, file: BinaryIO, *, headers: Mapping[str, str], size: int | None, name: str
) -> None:
    """Write the rest of a download to a file, whose position is after what it has.

    The documented functions do not resume a download of another process.

    Breaks when `http_get` takes no `resume_size`, or does not go on after a connection was lost.

    Args:
        file: what was downloaded before.

    Raises:
        OSError: the file has another size, without an errno; or it cannot be written.
    """
    http_get(
        url,
        file,
        resume_size=file.tell(),
        headers=dict(headers),
        expected_size=size,
        displayed_filename=name,
    )
