"""Importing optional packages, and hiding packages that an import should not find."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import ERROR, getLogger
from typing import Any

from handlers.errors import WrongConfig
from handlers.telemetry.log_levels import silence_imported


@contextmanager
def hide_packages(*names: str, unheard: str) -> Iterator[None]:
    """Let imports within find modules missing, as where they are not installed.

    What is imported already is left. The logger `unheard` may not complain meanwhile.
    """
    logger, hidden = getLogger(unheard), [name for name in names if name not in sys.modules]
    level = logger.level
    logger.setLevel(ERROR)
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not to be found
    try:
        yield
    finally:
        logger.setLevel(level)
        for name in hidden:
            del sys.modules[name]


def require_package(package: str, reason: str, install: str) -> Any:
    """Import an optional package, and reduce what it and its dependencies log.

    Args:
        package: the module's name.
        reason: the setting that needs it, for the error.
        install: how to install it, for the error.

    Raises:
        WrongConfig: it is not installed; the text says what asks for it, and how to get it.
    """
    try:
        module = import_module(package)
    except ImportError as error:
        raise WrongConfig(
            reason, f"needs {package}, which does not import ({error})", install
        ) from None
    silence_imported()
    return module
