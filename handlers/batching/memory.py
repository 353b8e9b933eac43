"""Groups of rows that are computed together, or in halves where memory does not suffice."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

from handlers.compat.device_errors import is_out_of_memory
from handlers.errors import OutOfMemory, RequestError, classify

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


class Halvable(Generic[Item]):
    """Iterates over groups; one that memory does not suffice for comes again in halves.

    Args:
        groups: the groups.
    """

    def __init__(self, groups: Iterable[list[Item]]) -> None:
        self._waiting = deque(groups)
        self._full = False

    def __iter__(self) -> Iterator[list[Item]]:
        while self._waiting:
            if self._full:
                # Later than in `halve`, where the error keeps tensors.
                _free_memory()
            self._full = False
            yield self._waiting.popleft()

    def halve(self, group: list[Item], error: RequestError) -> bool:
        """Return whether the halves of a group come next, because of its error."""
        self._full = isinstance(error, OutOfMemory)
        if not self._full or len(group) == 1:
            return False
        middle = len(group) // 2
        self._waiting.extendleft([group[middle:], group[:middle]])
        return True


def _free_memory() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
