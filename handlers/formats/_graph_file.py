"""The file of an exported model: found and read, or one sentence; and what it computes in."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from handlers.checkpoints.dtypes import pick_dtype
from handlers.checkpoints.model_spec import ModelSpec
from handlers.errors import WrongCheckpoint, short

DTYPE_FILE = "dtype.json"

logger = logging.getLogger(__name__)


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


def write_dtype(folder: Path, dtype: torch.dtype) -> None:
    """Lay what a graph computes in, which no load can change, beside it."""
    text = json.dumps({"dtype": _word(dtype)}, indent=2) + "\n"
    (folder / DTYPE_FILE).write_text(text, encoding="utf-8")


def warn_about_dtype(spec: ModelSpec, name: str) -> None:
    """Warn where `dtype: auto` chose something else when the graph was packed than it would here.

    Nothing is known of a graph without a note.
    """
    note = spec.directory / DTYPE_FILE
    if spec.config.handler.dtype != "auto" or not note.is_file():
        return
    packed = json.loads(note.read_text(encoding="utf-8"))["dtype"]
    best = _word(pick_dtype("auto", spec.device))
    if packed != best:
        logger.warning(
            "%s computes in %s, which dtype: auto chose where it was packed, and this machine would"
            " be best with %s; pack it again here, or name a dtype in its YAML and pack it again",
            name,
            packed,
            best,
        )


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
