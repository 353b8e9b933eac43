"""Rows that are computed together, or in halves where memory does not suffice."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from handlers.compat.device_errors import is_out_of_memory
from handlers.errors import OutOfMemory, RequestError, classify, without_frames

Item = TypeVar("Item")


@contextmanager
def memory_errors() -> Iterator[None]:
    """Raise :class:`OutOfMemory` for the errors of libraries that mean it."""
    try:
        yield
    except RequestError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise classify(error) from None
        raise


def error_of_rows(error: Exception) -> RequestError:
    """Return the error of rows that did not run, without the frames that keep tensors.

    Raises:
        Exception: the error itself, where it is neither a request's nor about memory.
    """
    if isinstance(error, RequestError):
        return without_frames(error)
    if is_out_of_memory(error):
        return classify(error)
    raise error


def runs_in_halves(error: RequestError, group: list[Item], waiting: deque[list[Item]]) -> bool:
    """Return whether the halves of a group run next, as memory does not suffice for all of it.

    Call it after the `except` clause, where the error keeps tensors no more.
    """
    if not isinstance(error, OutOfMemory):
        return False
    _free_memory()
    middle = len(group) // 2
    if middle:
        waiting.extendleft([group[middle:], group[:middle]])
    return bool(middle)


def _free_memory() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
