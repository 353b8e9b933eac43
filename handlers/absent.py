"""Modules that an import is not to find."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, getLogger


@contextmanager
def absent(*names: str, unheard: str) -> Iterator[None]:
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
