"""Versions of a model in the store: `NAME@VERSION.mar`, and which of them is the default."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from handlers.errors import KitError

SEPARATOR = "@"
DEFAULTS = "default_versions.json"
# TorchServe reads these only.
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class WrongVersion(KitError):
    """A version that cannot be a part of a file name."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"The version {version!r} cannot be a part of a file name; use letters, digits, '_',"
            " '-' and '.'."
        )


def versioned(name: str, version: str) -> str:
    """Return the name of the archive of a version, without its suffix.

    Raises:
        WrongVersion: it cannot be one.
    """
    if not VERSION.fullmatch(version):
        raise WrongVersion(version)
    return f"{name}{SEPARATOR}{version}"


def split(stem: str) -> tuple[str, str | None]:
    """Return the model and the version in the name of an archive; None without a version."""
    name, _, version = stem.partition(SEPARATOR)
    return name, version or None


def newest(versions: Iterable[str]) -> str:
    """Return the highest version: numbers are compared as numbers."""
    return max(versions, key=_parts)


def read_defaults(store: Path) -> dict[str, str]:
    """Return the default version of each model that a rollout has set one for."""
    path = store / DEFAULTS
    if not path.is_file():
        return {}
    return {str(name): str(version) for name, version in json.loads(path.read_text()).items()}


def write_default(store: Path, name: str, version: str) -> None:
    """Write the default version of a model, which the next start of the server loads."""
    defaults = {**read_defaults(store), name: version}
    draft = store / f".{DEFAULTS}"
    draft.write_text(json.dumps(defaults, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(store / DEFAULTS)


def _parts(version: str) -> list[tuple[int, int, str]]:
    parts = re.findall(r"\d+|[^\d.]+", version)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]
