"""Which rows run together, and how they become tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from handlers.batching.rows import Outputs, Row
from handlers.telemetry.meter import Meter

Batch = dict[str, torch.Tensor]
Forward = Callable[[Batch], Mapping[str, torch.Tensor]]


Side = Literal["left", "right"]


@dataclass(frozen=True)
class Padding:
    """How short rows are filled: the id for each input (0 where none is named) and the side."""

    ids: Mapping[str, int]
    side: Side = "right"


def by_length(lengths: Sequence[int], budget: int, waste: float = 0.5) -> Iterator[list[int]]:
    """Yield groups of row numbers, longest first, each within a budget of padded tokens.

    A row longer than the budget gets a group of its own; one that would be padded by more than
    the share `waste` of the longest starts a new group.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    group: list[int] = []
    for number in order:
        longest = lengths[group[0]] if group else 0
        full = (len(group) + 1) * longest > budget
        if group and (full or lengths[number] < (1 - waste) * longest):
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def pad(rows: Sequence[Row], padding: Padding) -> Batch:
    """Return the rows as tensors of shape (rows, longest row), with their attention mask."""
    shape = (len(rows), max(map(len, rows)))
    spans = [span(len(row), shape[1], padding.side) for row in rows]
    batch = {name: np.full(shape, padding.ids.get(name, 0)) for name in rows[0].features}
    batch["attention_mask"] = np.zeros(shape, dtype=np.int64)
    for number, (row, place) in enumerate(zip(rows, spans, strict=True)):
        batch["attention_mask"][number, place] = 1
        for name, values in row.features.items():
            batch[name][number, place] = values
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def span(length: int, width: int, side: Side) -> slice:
    """Return where a row of some length lies in a padded one."""
    return slice(0, length) if side == "right" else slice(width - length, width)


def run(
    forward: Forward,
    rows: Sequence[Row],
    *,
    padding: Padding,
    budget: int,
    per_token: Iterable[str],
    meter: Meter,
) -> list[Outputs]:
    """Run every row once, in groups of like length, and return each row's own outputs.

    `per_token` names the outputs that have a value for each token; they are cut to the row.
    """
    results: list[Outputs] = [{}] * len(rows)
    for group in by_length([len(row) for row in rows], budget):
        chosen = [rows[number] for number in group]
        batch = pad(chosen, padding)
        outputs = {name: numpy_of(tensor) for name, tensor in forward(batch).items()}
        width = batch["input_ids"].shape[1]
        for place, (number, row) in enumerate(zip(group, chosen, strict=True)):
            own = span(len(row), width, padding.side)
            results[number] = {
                name: array[place, own] if name in per_token else array[place]
                for name, array in outputs.items()
            }
        meter.count(forwards=1, tokens=sum(map(len, chosen)), slots=batch["input_ids"].numel())
    return results


def numpy_of(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return a tensor's numbers as float32 on the host."""
    return tensor.detach().float().cpu().numpy()
