"""Sequence packing: several texts share a row, so that hardly any padding is computed.

Position ids restart at each text and attention is limited to the text itself, so each text has the
same outputs as in a row without others. BetterTransformer skipped padding with nested tensors;
packing needs no special kernels. Attention of variable length, where there is one, takes all texts
of a forward in one row, with the borders between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..errors import RequestError
from .padding import HostCopy, Padding, RunOptions, Tensors, error_of_rows, queue_halves
from .rows import Outputs, Row, RowOutcome

# Candidate row widths. Wider rows cost more because attention is quadratic. Widths are multiples of
# a SIMD tile, which also limits the number of shapes that an engine compiles for.
WIDTHS = (128, 112, 144, 96, 160)
TILE = 16
# Additional inputs of a packed graph: the text of each slot, and the first slot of each text.
SEGMENTS, ROWS, COLUMNS = "segment_ids", "text_rows", "text_columns"
# An input of texts in one row: the first slot of each text, and the end of the last.
BORDERS = "text_borders"


@dataclass(frozen=True)
class PackedText:
    """The position of a text in a packed batch: its index, its row and its first column."""

    index: int
    row: int
    start: int


@dataclass(frozen=True)
class PackedBatch:
    """A batch whose rows hold several texts.

    Attributes:
        batch: the model inputs including `position_ids`, each of shape (rows, width).
        segments: index of the text that each slot belongs to, -1 for padding.
            Shape: (rows, width).
    """

    batch: Tensors
    segments: torch.Tensor
    texts: Sequence[PackedText]

    @cached_property
    def inputs(self) -> Tensors:
        """The model inputs, the segments, and the first slot of each text in order of `texts`."""
        return {
            **self.batch,
            SEGMENTS: self.segments,
            ROWS: torch.tensor([text.row for text in self.texts]),
            COLUMNS: torch.tensor([text.start for text in self.texts]),
        }


def best_fit(lengths: Sequence[int]) -> list[list[int]]:
    """Return text indices for each row, packed at the width that leaves the fewest slots empty."""

    def slots(rows: Sequence[Sequence[int]]) -> int:
        return len(rows) * max(_round_up(sum(lengths[index] for index in row)) for row in rows)

    return min((first_fit_decreasing(lengths, width) for width in WIDTHS), key=slots)


def first_fit_decreasing(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Return text indices for each row: longest text first, each into the first row that it fits.

    A text longer than `width` gets a separate row.
    """
    rows: list[list[int]] = []
    free: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        fitting = (row for row, slots in enumerate(free) if slots >= lengths[index])
        row = next(fitting, None)
        if row is None:
            rows.append([index])
            free.append(width - lengths[index])
        else:
            rows[row].append(index)
            free[row] -= lengths[index]
    return rows


def pack(texts: Sequence[Row], rows: Sequence[Sequence[int]], padding: Padding) -> PackedBatch:
    """Concatenate texts into rows.

    Args:
        rows: the text indices of each row.
        padding: the padding ids for slots at the end of a row.
    """
    width = _round_up(max(sum(len(texts[index]) for index in row) for row in rows))
    shape = (len(rows), width)
    names = texts[rows[0][0]].features
    arrays = {name: np.full(shape, padding.ids.get(name, 0)) for name in names}
    arrays["position_ids"] = np.zeros(shape, dtype=np.int64)
    segments, packed = np.full(shape, -1), []
    for row, indices in enumerate(rows):
        start = 0
        for index in indices:
            columns = slice(start, start + len(texts[index]))
            for name, values in texts[index].features.items():
                arrays[name][row, columns] = values
            arrays["position_ids"][row, columns] = _positions(texts[index], padding)
            segments[row, columns] = index
            packed.append(PackedText(index, row, start))
            start = columns.stop
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return PackedBatch(batch, torch.from_numpy(segments), packed)


def _positions(text: Row, padding: Padding) -> npt.NDArray[np.int64]:
    """Return the positions of the tokens of a text, from 0 on.

    The RoBERTa family counts no padding tokens, which are one place before the first position, also
    where a user writes one.
    Source: `RobertaEmbeddings.create_position_ids_from_input_ids` of transformers.
    """
    if padding.unnumbered is None:
        return np.arange(len(text))
    counted = np.asarray(text.features["input_ids"]) != padding.unnumbered
    return np.where(counted, np.cumsum(counted) - 1, -1)


def with_borders(packed: Mapping[str, torch.Tensor]) -> Tensors:
    """Return the inputs of texts in one row with :data:`BORDERS` in place of their first slots.

    Args:
        packed: the tensors of :attr:`PackedBatch.inputs`.
    """
    end = (packed[SEGMENTS] >= 0).sum()[None]
    borders = torch.cat([packed[COLUMNS], end])
    own = {name: tensor for name, tensor in packed.items() if name not in (ROWS, COLUMNS)}
    return {**own, BORDERS: borders}


def with_first_slots(inputs: Mapping[str, torch.Tensor]) -> Tensors:
    """Return the inputs of texts in one row with their rows and columns, and without borders.

    A text without tokens, which fills the borders up to a fixed number, has a slot of its row.
    """
    own = {name: tensor for name, tensor in inputs.items() if name != BORDERS}
    columns = inputs[BORDERS][:-1].clamp(max=own[SEGMENTS].shape[1] - 1)
    return {**own, ROWS: torch.zeros_like(columns), COLUMNS: columns}


def pack_padded(batch: Mapping[str, torch.Tensor]) -> PackedBatch:
    """Convert a padded batch to a packed one with one text per row."""
    mask = batch["attention_mask"].bool()
    inputs = {name: tensor for name, tensor in batch.items() if name != "attention_mask"}
    inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    segments = torch.where(mask, torch.arange(len(mask))[:, None], -1)
    starts = mask.int().argmax(1).tolist()
    return PackedBatch(
        inputs, segments, [PackedText(row, row, start) for row, start in enumerate(starts)]
    )


def unpack(
    outputs: Mapping[str, npt.NDArray[Any]],
    packed: PackedBatch,
    texts: Sequence[Row],
    per_token: Iterable[str],
) -> list[Outputs]:
    """Return the outputs of each text, in the order of :attr:`PackedBatch.texts`.

    Args:
        per_token: names of the outputs of shape (rows, width, ...). All others have one entry for
            each text.
    """
    return [
        {
            name: array[text.row, text.start : text.start + len(texts[text.index])]
            if name in per_token
            else array[order]
            for name, array in outputs.items()
        }
        for order, text in enumerate(packed.texts)
    ]


def run_packed(
    forward: Callable[[PackedBatch], Mapping[str, torch.Tensor]],
    texts: Sequence[Row],
    options: RunOptions,
    *,
    one_row: bool = False,
    ahead: int = 0,
) -> list[RowOutcome]:
    """Run every text once in packed rows and return the outcome of each text, in their order.

    A forward pass that raises a :class:`RequestError` ends with it for its own texts only. Rows
    that do not fit in memory together run in halves.

    Args:
        forward: runs a packed batch. Outputs per token have shape (rows, width, ...), all others
            have one entry for each text, in the order of :attr:`PackedBatch.texts`.
        one_row: whether each forward takes one row with all its texts.
        ahead: the number of forwards that start before the outputs of the first are read, on a
            device that computes while the next forward is prepared.
    """
    run = _PackedRun(forward, texts, options)
    lengths, budget = [len(text) for text in texts], options.budget
    # A group is a list of rows, or for one row a list of texts: halves of both are groups.
    waiting = deque[list[Any]](
        in_one_row(lengths, budget) if one_row else _group(best_fit(lengths), texts, budget)
    )
    running = deque[tuple[list[Any], PackedBatch, HostCopy]]()
    while waiting or running:
        if waiting and len(running) <= ahead:
            group = waiting.popleft()
            packed = pack(texts, [group] if one_row else group, options.padding)
            started = run.start(packed)
            if isinstance(started, HostCopy):
                running.append((group, packed, started))
                continue
            failure: RequestError | None = started
        else:
            group, packed, copy = running.popleft()
            failure = run.finish(packed, copy)
        if failure and not queue_halves(failure, group, waiting):
            run.fail(packed, failure)
    return run.outcomes


class _PackedRun:
    """The outcomes of texts, which forwards of packed rows fill."""

    def __init__(
        self,
        forward: Callable[[PackedBatch], Mapping[str, torch.Tensor]],
        texts: Sequence[Row],
        options: RunOptions,
    ) -> None:
        self.outcomes: list[RowOutcome] = [{}] * len(texts)
        self._forward, self._texts, self._options = forward, texts, options

    def start(self, packed: PackedBatch) -> HostCopy | RequestError:
        """Start a forward, and return its outputs on their way to host memory, or its error."""
        try:
            return HostCopy(self._forward(packed))
        except Exception as error:  # noqa: BLE001 - errors of libraries are raised again
            return error_of_rows(error)

    def finish(self, packed: PackedBatch, copy: HostCopy) -> RequestError | None:
        """Set the outcomes of the texts of a forward; return its error if it failed."""
        options, texts = self._options, self._texts
        try:
            outputs = unpack(copy.arrays(), packed, texts, options.per_token)
        except Exception as error:  # noqa: BLE001 - errors of libraries are raised again
            return error_of_rows(error)
        for text, found in zip(packed.texts, outputs, strict=True):
            self.outcomes[text.index] = options.postprocess(texts[text.index], found)
        tokens = sum(len(texts[text.index]) for text in packed.texts)
        options.meter.count(forwards=1, tokens=tokens, slots=packed.segments.numel())
        return None

    def fail(self, packed: PackedBatch, error: RequestError) -> None:
        """Set the error of a forward as the outcome of all its texts."""
        for text in packed.texts:
            self.outcomes[text.index] = error


def in_one_row(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield text indices for each forward of one row, longest first, each within a budget.

    A text that is longer than the budget has a separate forward.
    """
    group: list[int] = []
    tokens = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if group and tokens + lengths[index] > budget:
            yield group
            group, tokens = [], 0
        group.append(index)
        tokens += lengths[index]
    if group:
        yield group


def _group(
    rows: Sequence[list[int]], texts: Sequence[Row], budget: int
) -> Iterator[list[list[int]]]:
    """Yield groups of rows, longest first, each within a budget of slots.

    A row that would be padded by more than the first of `WIDTHS` starts a new group.
    """
    sizes = [sum(len(texts[index]) for index in row) for row in rows]
    group: list[list[int]] = []
    widest = 0
    for number in sorted(range(len(rows)), key=sizes.__getitem__, reverse=True):
        full = (len(group) + 1) * widest > budget
        if group and (full or widest - sizes[number] > WIDTHS[0]):
            yield group
            group = []
        widest = widest if group else sizes[number]
        group.append(rows[number])
    if group:
        yield group


def _round_up(size: int) -> int:
    return -(-size // TILE) * TILE
