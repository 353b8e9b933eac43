"""Batches of rows of arrays, such as images: rows of equal shapes share a forward."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from handlers.batching.memory import error_of_rows, runs_in_halves
from handlers.batching.padding import Batch, to_numpy
from handlers.batching.rows import BaseRow, Keep, RowOutcome, keep_all
from handlers.telemetry.meter import Meter


@dataclass(frozen=True)
class ArrayRow(BaseRow):
    """The model inputs of one row: an array for each, without the first dimension of a batch.

    Attributes:
        features: the arrays by the name of the input.
        size: what they cost, in the unit of the task's budget: pixels of an image, for example.
    """

    features: Mapping[str, np.ndarray[Any, Any]]
    size: int

    @property
    def cost(self) -> int:
        return self.size + sum(self.shared.values())

    @property
    def shared(self) -> Mapping[Hashable, int]:
        """What it costs in addition, by what that is for: rows of one batch compute it once."""
        return {}

    @property
    def shape(self) -> Hashable:
        """The shapes of its arrays, which rows of one batch have in common."""
        return shape_of(self.features)


def shape_of(features: Mapping[str, np.ndarray[Any, Any]]) -> Hashable:
    """Return the shapes of arrays."""
    return tuple((name, array.shape) for name, array in sorted(features.items()))


def stack(rows: Sequence[BaseRow]) -> Batch:
    """Return rows of equal shapes as tensors with a first dimension of rows."""
    return {
        name: torch.from_numpy(np.stack([row.features[name] for row in rows]))
        for name in rows[0].features
    }


def run_by_shape(
    forward: Callable[[Batch], Mapping[str, torch.Tensor]],
    rows: Sequence[ArrayRow],
    *,
    budget: int,
    meter: Meter,
    keep: Keep = keep_all,
    collate: Callable[[Sequence[Any]], Batch] = stack,
) -> list[RowOutcome]:
    """Run every row once, grouped by shape, and return the outcome of each row in their order.

    A forward pass that raises a :class:`RequestError` ends with it for its own rows only. Rows that
    do not fit in memory together run in halves.

    Args:
        forward: runs a batch.
        rows: the rows.
        budget: the maximum cost of the rows of one forward; a more expensive row runs alone.
        meter: counts forwards.
        keep: returns what is kept of a row's outputs.
        collate: returns the batch of rows of equal shapes.
    """
    results: list[RowOutcome] = [{}] * len(rows)
    waiting = deque(group_by_shape(rows, budget))
    while waiting:
        group, failure = waiting.popleft(), None
        try:
            outputs = forward(collate([rows[index] for index in group]))
            arrays = {name: to_numpy(tensor) for name, tensor in outputs.items()}
        except Exception as error:  # noqa: BLE001 - errors of libraries are raised again
            failure = error_of_rows(error)
        if failure:
            if not runs_in_halves(failure, group, waiting):
                for index in group:
                    results[index] = failure
            continue
        for place, index in enumerate(group):
            found = {name: array[place] for name, array in arrays.items()}
            results[index] = keep(rows[index], found)
        meter.count(forwards=1)
    return results


def group_by_shape(rows: Sequence[ArrayRow], budget: int) -> Iterator[list[int]]:
    """Yield groups of indices of rows with equal shapes, each within a budget."""
    by_shape = defaultdict[Hashable, list[int]](list)
    for index, row in enumerate(rows):
        by_shape[row.shape].append(index)
    for indices in by_shape.values():
        yield from _within_budget(rows, indices, budget)


def _within_budget(
    rows: Sequence[ArrayRow], indices: Sequence[int], budget: int
) -> Iterator[list[int]]:
    group: list[int] = []
    cost, shared = 0, dict[Hashable, int]()
    for index in indices:
        row = rows[index]
        together = {**shared, **row.shared}
        if group and cost + row.size + sum(together.values()) > budget:
            yield group
            group, cost, together = [], 0, dict(row.shared)
        group.append(index)
        cost, shared = cost + row.size, together
    if group:
        yield group
