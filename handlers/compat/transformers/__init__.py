"""What is private or undocumented in transformers, by subject."""

from __future__ import annotations

from contextlib import AbstractContextManager

from handlers.compat.imports import hide_packages


def without_scikit_learn() -> AbstractContextManager[None]:
    """Import transformers within the block without scikit-learn and SciPy, which takes 1.5 seconds.

    transformers imports them, if installed, for assisted generation.

    Breaks when transformers needs scikit-learn for what the kit does, or imports it later.
    """
    return hide_packages("sklearn", silence="transformers")
