"""Imports of optional packages, and hiding packages from other packages' imports."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from logging import ERROR, getLogger
from typing import Any

from handlers.errors import WrongConfig
from handlers.telemetry.log_levels import silence_imported

# Packages that another one imports where it finds them, and fails: pipelines of diffusers need a
# newer transformers than optimum-intel takes.
INCOMPATIBLE = {"optimum.intel.openvino": ("diffusers",)}


@contextmanager
def hide_packages(*names: str, silence: str) -> Iterator[None]:
    """Make modules appear as not installed to imports within the block.

    Modules that are already imported stay available.

    Args:
        *names: the modules.
        silence: a logger that is limited to errors within the block.
    """
    logger, hidden = getLogger(silence), [name for name in names if name not in sys.modules]
    level = logger.level
    logger.setLevel(ERROR)
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes an import fail
    try:
        yield
    finally:
        logger.setLevel(level)
        for name in hidden:
            del sys.modules[name]


def require_package(package: str, reason: str, install: str) -> Any:
    """Import an optional package and limit the loggers of export libraries to errors.

    Args:
        package: the name of the module.
        reason: the setting that requires it, for the error message.
        install: the command that installs it, for the error message.

    Raises:
        WrongConfig: the package is not installed or cannot be imported.
    """
    try:
        with _without(INCOMPATIBLE.get(package, ())):
            module = import_module(package)
    except ImportError as error:
        raise WrongConfig(
            reason, f"needs {package}, which does not import ({error})", install
        ) from None
    silence_imported()
    return module


@contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    """Make modules appear as not installed within the block, also where they are imported."""
    kept = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None makes an import fail
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(kept)


def is_installed(package: str) -> bool:
    """Return whether an optional package is installed; it is not imported itself."""
    try:
        # The package that it is a part of is imported.
        with _without(INCOMPATIBLE.get(package, ())):
            return find_spec(package) is not None
    except ImportError:  # The package that it is a part of is not installed.
        return False
