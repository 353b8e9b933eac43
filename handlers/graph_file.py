"""The file of an exported model: found and read, or one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from handlers.errors import WrongCheckpoint, short


def graph_file(directory: Path, name: str, pattern: str | None = None) -> Path:
    """Return the exported model in a folder: the first that fits the pattern, by default the name.

    Raises:
        WrongCheckpoint: there is none.
    """
    path = min(directory.glob(pattern or name), default=None)
    if path is None:
        raise WrongCheckpoint(
            name, "is not there", "pack it with scripts/create_archive.py, which makes it"
        )
    return path


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Say in one sentence that a file cannot be loaded, whatever its reader raises.

    Raises:
        WrongCheckpoint: the block failed.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a broken file raises whatever its reader does
        raise WrongCheckpoint(
            name, f"cannot be loaded ({short(error)})", "export it again"
        ) from None
