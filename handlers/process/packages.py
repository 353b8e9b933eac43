"""Imports of optional packages."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from handlers.compat.imports import hide_incompatible
from handlers.errors import WrongConfig
from handlers.telemetry.log_levels import silence_imported


def require_package(package: str, reason: str, install: str) -> Any:
    """Import an optional package and limit the loggers of export libraries to errors.

    Raises:
        WrongConfig: the package is not installed or cannot be imported.
    """
    try:
        with hide_incompatible(package):
            module = import_module(package)
    except ImportError as error:
        raise WrongConfig(
            reason, f"needs {package}, which does not import ({error})", install
        ) from None
    silence_imported()
    return module


def is_installed(package: str) -> bool:
    """Return whether an optional package is installed; it is not imported itself."""
    try:
        # The package that it is a part of is imported.
        with hide_incompatible(package):
            return find_spec(package) is not None
    except ImportError:  # The package that it is a part of is not installed.
        return False
