"""What is private in torch.cuda; torch is not imported here."""

from __future__ import annotations

import sys


def is_unusable_after_fork() -> bool:
    """Return whether this process is a fork of one in which torch had begun to use CUDA.

    Breaks when torch refuses CUDA in forks for another reason than `_is_in_bad_fork`.
    """
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda._is_in_bad_fork())
