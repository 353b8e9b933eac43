"""Read and write Java .properties files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def read_properties(path: Path) -> dict[str, str]:
    """Return the keys and raw values of a file, without comments."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_properties(path: Path, values: Mapping[str, str]) -> None:
    """Write one `key=value` line per item."""
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")


def escape(value: object) -> str:
    """Escape a value for a .properties file."""
    return str(value).replace("\\", "\\\\")
