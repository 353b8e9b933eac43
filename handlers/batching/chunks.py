"""Chunks of bounded cost: cheap requests run first and do not wait for expensive ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def chunk_by_cost(costs: Sequence[int], limit: int, owners: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of indices, cheapest owner first; a group is in the order of its indices.

    Args:
        costs: the cost of each item.
        limit: the maximum cost of a group. A more expensive item forms a group alone.
        owners: the number of the owner of each item, which the cost of all its items counts for.
    """
    totals = Counter[int]()
    for owner, cost in zip(owners, costs, strict=True):
        totals[owner] += cost
    chunk: list[int] = []
    total = 0
    for index in sorted(range(len(costs)), key=lambda index: (totals[owners[index]], costs[index])):
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
