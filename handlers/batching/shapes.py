"""Batches of rows of arrays, such as images: rows of equal shapes share a forward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from handlers.batching.memory import Halvable, memory_errors
from handlers.batching.padding import Batch, to_numpy
from handlers.batching.rows import BaseRow, Keep, RowOutcome, keep_all
from handlers.errors import RequestError, without_frames
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
        return self.size

    @property
    def shape(self) -> Hashable:
        """The shapes of its arrays, which rows of one batch have in common."""
        return tuple((name, array.shape) for name, array in sorted(self.features.items()))


def stack(rows: Sequence[ArrayRow]) -> Batch:
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
    """
    results: list[RowOutcome] = [{}] * len(rows)
    groups = Halvable(group_by_shape(rows, budget))
    for group in groups:
        try:
            with memory_errors():
                outputs = forward(stack([rows[index] for index in group]))
                arrays = {name: to_numpy(tensor) for name, tensor in outputs.items()}
        except RequestError as error:
            if groups.halve(group, error):
                continue
            for index in group:
                results[index] = without_frames(error)
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
        size = max(1, budget // max(1, rows[indices[0]].cost))
        yield from (indices[first : first + size] for first in range(0, len(indices), size))
