"""Several texts laid end to end in one row, so that hardly any padding is computed.

Positions restart at each text and attention stays within it, so every text gets what it would get
alone. The old BetterTransformer skipped padding with nested tensors; this needs no special kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from handlers.batching.padding import Batch, Padding, numpy_of
from handlers.batching.rows import Outputs, Row
from handlers.telemetry.meter import Meter

# Rows may be so wide; wider ones cost more, since attention grows with the square. Widths are
# multiples of a tile of the processor's, also so that engines meet few shapes to compile for.
WIDTHS = (128, 112, 144, 96, 160)
TILE = 16
# Names of what packed rows have beside a model's own inputs.
SEGMENTS, ROWS, COLUMNS = "segment_ids", "text_rows", "text_columns"


@dataclass(frozen=True)
class Place:
    """Where a text lies: its number, the row and the first column."""

    text: int
    row: int
    start: int


@dataclass(frozen=True)
class Packed:
    """Texts in rows.

    Attributes:
        batch: the model inputs, `position_ids` among them, each of shape (rows, width).
        segments: which text each slot belongs to, -1 for none. Shape: (rows, width).
        places: where each text lies.
    """

    batch: Batch
    segments: torch.Tensor
    places: Sequence[Place]

    @cached_property
    def inputs(self) -> Batch:
        """The model inputs, the segments, and where each text begins, in the order of `places`."""
        return {
            **self.batch,
            SEGMENTS: self.segments,
            ROWS: torch.tensor([place.row for place in self.places]),
            COLUMNS: torch.tensor([place.start for place in self.places]),
        }


def best_fit(lengths: Sequence[int]) -> list[list[int]]:
    """Return text numbers for each row, in rows of the width that leaves the least empty."""

    def slots(rows: Sequence[Sequence[int]]) -> int:
        return len(rows) * max(_tiled(sum(lengths[number] for number in row)) for row in rows)

    return min((first_fit_decreasing(lengths, width) for width in WIDTHS), key=slots)


def first_fit_decreasing(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Return text numbers for each row: longest first, each into the first row with room.

    A text longer than a row gets a row of its own.
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        fits = (place for place, left in enumerate(room) if left >= lengths[number])
        place = next(fits, None)
        if place is None:
            rows.append([number])
            room.append(width - lengths[number])
        else:
            rows[place].append(number)
            room[place] -= lengths[number]
    return rows


def pack(texts: Sequence[Row], rows: Sequence[Sequence[int]], padding: Padding) -> Packed:
    """Return texts as tensors, each row of numbers end to end; their width is one of few."""
    width = _tiled(max(sum(len(texts[number]) for number in row) for row in rows))
    shape = (len(rows), width)
    names = texts[rows[0][0]].features
    arrays = {name: np.full(shape, padding.ids.get(name, 0)) for name in names}
    arrays["position_ids"] = np.zeros(shape, dtype=np.int64)
    segments, places = np.full(shape, -1), []
    for number, row in enumerate(rows):
        start = 0
        for text in row:
            own = slice(start, start + len(texts[text]))
            for name, values in texts[text].features.items():
                arrays[name][number, own] = values
            arrays["position_ids"][number, own] = np.arange(len(texts[text]))
            segments[number, own] = text
            places.append(Place(text, number, start))
            start = own.stop
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Packed(batch, torch.from_numpy(segments), places)


def pack_padded(batch: Mapping[str, torch.Tensor]) -> Packed:
    """Return a padded batch as packed rows that hold one text each."""
    mask = batch["attention_mask"].bool()
    inputs = {name: tensor for name, tensor in batch.items() if name != "attention_mask"}
    inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    segments = torch.where(mask, torch.arange(len(mask))[:, None], -1)
    starts = mask.int().argmax(1).tolist()
    return Packed(inputs, segments, [Place(row, row, start) for row, start in enumerate(starts)])


def run_packed(
    forward: Callable[[Packed], Mapping[str, torch.Tensor]],
    texts: Sequence[Row],
    *,
    padding: Padding,
    budget: int,
    per_token: Iterable[str],
    meter: Meter,
) -> list[Outputs]:
    """Run every text once and return each one's own outputs, as `batching.run` does.

    `forward` gives an output that is per token for each slot, and any other for each text in the
    order of `places`.
    """
    results: list[Outputs] = [{}] * len(texts)
    for rows in _within(best_fit([len(text) for text in texts]), texts, budget):
        packed = pack(texts, rows, padding)
        outputs = {name: numpy_of(tensor) for name, tensor in forward(packed).items()}
        for order, place in enumerate(packed.places):
            own = slice(place.start, place.start + len(texts[place.text]))
            results[place.text] = {
                name: array[place.row, own] if name in per_token else array[order]
                for name, array in outputs.items()
            }
        real = sum(len(texts[place.text]) for place in packed.places)
        meter.count(forwards=1, tokens=real, slots=packed.segments.numel())
    return results


def _within(
    rows: Sequence[list[int]], texts: Sequence[Row], budget: int
) -> Iterator[list[list[int]]]:
    """Yield groups of rows, fullest first, each within a budget of slots.

    A row that would be padded by more than the usual width starts a new group.
    """
    sizes = [sum(len(texts[number]) for number in row) for row in rows]
    group: list[list[int]] = []
    widest = 0
    for place in sorted(range(len(rows)), key=sizes.__getitem__, reverse=True):
        full = (len(group) + 1) * widest > budget
        if group and (full or widest - sizes[place] > WIDTHS[0]):
            yield group
            group = []
        widest = widest if group else sizes[place]
        group.append(rows[place])
    if group:
        yield group


def _tiled(size: int) -> int:
    return -(-size // TILE) * TILE
