"""Java's .properties files: read one, write one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def read_properties(path: Path) -> dict[str, str]:
    """Return the keys and values of a file, comments left out, values as they are written."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_properties(path: Path, values: Mapping[str, str]) -> None:
    """Write keys and values, one a line."""
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")


def escape(value: object) -> str:
    """Return a path or text as a value that Java reads back unchanged."""
    return str(value).replace("\\", "\\\\")
