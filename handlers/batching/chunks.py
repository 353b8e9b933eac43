"""Chunks of bounded cost, cheap requests first, and halves of those that do not fit in memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from handlers.compat.device_errors import is_out_of_memory
from handlers.errors import OutOfMemory, RequestError, classify, without_frames


def chunk_by_cost(
    costs: Sequence[int], limit: int, http_request_ids: Sequence[int]
) -> Iterator[list[int]]:
    """Yield groups of indices, cheapest HTTP request first, each in the order of its indices.

    Args:
        limit: the maximum cost of a group. A more expensive item forms a group alone.
        http_request_ids: the number of the HTTP request of each item; the cost of a request is the
            sum of the costs of its items.
    """
    totals = Counter[int]()
    for number, cost in zip(http_request_ids, costs, strict=True):
        totals[number] += cost
    chunk: list[int] = []
    total = 0
    for index in sorted(
        range(len(costs)), key=lambda index: (totals[http_request_ids[index]], costs[index])
    ):
        if chunk and total + costs[index] > limit:
            yield sorted(chunk)
            chunk, total = [], 0
        chunk.append(index)
        total += costs[index]
    if chunk:
        yield sorted(chunk)


def text_size(inputs: Any) -> int:
    """Return the number of characters in texts, or in lists and objects of texts."""
    size, remaining = 0, [inputs]
    while remaining:
        value = remaining.pop()
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            remaining.extend(value.values())
        elif isinstance(value, (list, tuple)):
            remaining.extend(value)
        else:
            size += 1
    return size


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
