"""Batches of padded rows, grouped by length."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from ..compat.device_errors import is_out_of_memory
from ..errors import OutOfMemory, RequestError, classify, without_frames
from ..telemetry.metrics import Meter
from .rows import BaseRow, Outputs, Postprocess, Row, RowOutcome, unprocessed

Tensors = dict[str, torch.Tensor]
Forward = Callable[[Tensors], Mapping[str, torch.Tensor]]
Side = Literal["left", "right"]
RowT = TypeVar("RowT")


@dataclass(frozen=True)
class Padding:
    """How rows are padded.

    Attributes:
        ids: the padding id of each model input; 0 for inputs not listed.
        sizes: the numbers that each token has in an input that has several. A row with one number
            for each token has it in all their places.
        unnumbered: the id of the token that has no position, also within a text; None
            where every token has one.
        min_width: the number of tokens that the model needs; shorter rows are padded to it.
    """

    ids: Mapping[str, int]
    side: Side = "right"
    sizes: Mapping[str, int] = field(default_factory=dict)
    unnumbered: int | None = None
    min_width: int = 1


def group_by_length(
    lengths: Sequence[int],
    budget: int,
    max_padding_share: float = 0.5,
    padded_limit: float = math.inf,
) -> Iterator[list[int]]:
    """Yield groups of row indices, longest row first.

    Args:
        budget: the maximum number of tokens in a group, padding included. A longer row forms a
            group alone.
        max_padding_share: a row that would have a larger share of padding starts a new group.
        padded_limit: a longer row forms a group with rows of its length only.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    group: list[int] = []
    for index in order:
        longest = lengths[group[0]] if group else 0
        full = (len(group) + 1) * longest > budget
        shortest = longest if longest > padded_limit else (1 - max_padding_share) * longest
        if group and (full or lengths[index] < shortest):
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def pad(rows: Sequence[Row], padding: Padding, least_width: int = 0) -> Tensors:
    """Return the rows as tensors, with an attention mask.

    Args:
        least_width: the number of tokens to which shorter rows are padded.

    Returns:
        Tensors of shape (rows, width), or (rows, width, size) for the inputs of `padding.sizes`.
    """
    width = max(least_width, padding.min_width, *map(len, rows))
    batch = {}
    for name in rows[0].features:
        shape = (len(rows), width, padding.sizes.get(name, 1))
        batch[name] = np.full(shape, padding.ids.get(name, 0))
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        real = token_columns(len(row), width, padding.side)
        mask[index, real] = 1
        for name, values in row.features.items():
            batch[name][index, real] = np.reshape(values, (len(row), -1))
    tensors = {"attention_mask": torch.from_numpy(mask)}
    for name, array in batch.items():
        tensors[name] = torch.from_numpy(array if name in padding.sizes else array[..., 0])
    return tensors


def token_columns(length: int, width: int, side: Side) -> slice:
    """Return the columns of a row of `length` tokens that is padded to `width`."""
    return slice(0, length) if side == "right" else slice(width - length, width)


def unpad(
    outputs: Mapping[str, torch.Tensor],
    rows: Sequence[Row],
    padding: Padding,
    per_token: Iterable[str],
) -> list[Outputs]:
    """Return the outputs of each row of a padded batch, for its own tokens alone."""
    arrays = {}
    for name, tensor in outputs.items():
        arrays[name] = to_numpy(tensor)
    found: list[Outputs] = []
    for position, row in enumerate(rows):
        own = {}
        for name, array in arrays.items():
            values = array[position]
            if name in per_token:
                values = values[token_columns(len(row), len(values), padding.side)]
            own[name] = values
        found.append(own)
    return found


@dataclass(frozen=True)
class RunOptions:
    """How rows of tokens run.

    Attributes:
        budget: the maximum number of tokens per forward, padding included.
        per_token: names of the outputs with one entry for each token of a row.
        postprocess: changes the outputs of a row.
    """

    padding: Padding
    budget: int
    per_token: Collection[str]
    meter: Meter
    postprocess: Postprocess = unprocessed


def run_padded(
    forward: Forward,
    rows: Sequence[Row],
    options: RunOptions,
    *,
    padded_limit: float = math.inf,
    collate: Callable[[Sequence[Any]], Tensors] | None = None,
) -> list[RowOutcome]:
    """Run every row once, grouped by length, and return the outcome of each row in their order.

    A forward pass that raises a :class:`RequestError` ends with it for its own rows only. Rows that
    do not fit in memory together run in halves.

    Args:
        padded_limit: the longest row that may share a forward with shorter ones.
        collate: returns the batch of rows; by default they are padded.
    """
    padding = options.padding
    results: list[RowOutcome] = [{}] * len(rows)
    costs = list(map(attrgetter("cost"), rows))
    waiting = deque(group_by_length(costs, options.budget, padded_limit=padded_limit))
    while waiting:
        group, failure = waiting.popleft(), None
        members = list(map(rows.__getitem__, group))
        batch = collate(members) if collate else pad(members, padding)
        try:
            outputs = unpad(forward(batch), members, padding, options.per_token)
        except Exception as error:  # noqa: BLE001 - errors of libraries are raised again
            failure = error_of_rows(error)
        if failure:
            if not queue_halves(failure, group, waiting):
                for index in group:
                    results[index] = failure
            continue
        for index, found in zip(group, outputs, strict=True):
            results[index] = options.postprocess(rows[index], found)
        slots = batch["input_ids"].numel()
        options.meter.count(forwards=1, tokens=sum(map(len, members)), slots=slots)
    return results


def to_numpy(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return a tensor as a float32 array in host memory."""
    return tensor.detach().float().cpu().numpy()


class HostCopy:
    """The outputs of a forward on their way to host memory.

    The copy of all of them is one transfer, which starts at once. Outputs that already are in host
    memory are not copied.
    """

    def __init__(self, outputs: Mapping[str, torch.Tensor]) -> None:
        self._shapes = {name: tensor.shape for name, tensor in outputs.items()}
        self._tensors = [tensor.detach().float() for tensor in outputs.values()]
        self._copied: torch.cuda.Event | None = None
        if self._tensors and self._tensors[0].is_cuda:
            flat = torch.cat([tensor.flatten() for tensor in self._tensors])
            # torch allocates pinned memory for it.
            host = flat.to("cpu", non_blocking=True)
            self._tensors = list(host.split([tensor.numel() for tensor in self._tensors]))
            self._copied = torch.cuda.Event()
            self._copied.record()

    def arrays(self) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
        """Return the outputs as float32 arrays, once they are copied."""
        if self._copied:
            self._copied.synchronize()
        pairs = zip(self._shapes.items(), self._tensors, strict=True)
        return {name: tensor.cpu().numpy().reshape(shape) for (name, shape), tensor in pairs}


def move_together(tensors: Mapping[str, torch.Tensor], device: torch.device) -> Tensors:
    """Return tensors of integers on a device, in one transfer, from pinned memory for a GPU."""
    if device.type == "cpu":
        return dict(tensors)
    moved = pinned(tensors, device).to(device, non_blocking=True)
    return views(moved, tensors)


def pinned(tensors: Mapping[str, torch.Tensor], device: torch.device) -> torch.Tensor:
    """Return one tensor of all numbers of others, from which a GPU copies by itself."""
    flat = torch.cat([tensor.flatten() for tensor in tensors.values()])
    return flat.pin_memory() if device.type == "cuda" else flat


def views(flat: torch.Tensor, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Return the parts of a tensor with one dimension that have the shapes of tensors."""
    parts = flat.split([tensor.numel() for tensor in tensors.values()])
    pairs = zip(tensors.items(), parts, strict=True)
    return {name: part.view(tensor.shape) for (name, tensor), part in pairs}


@dataclass(frozen=True)
class ArrayRow(BaseRow):
    """The model inputs of one row: an array for each, without the first dimension of a batch.

    Attributes:
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


def stack(rows: Sequence[BaseRow]) -> Tensors:
    """Return rows of equal shapes as tensors with a first dimension of rows."""
    return {
        name: torch.from_numpy(np.stack([row.features[name] for row in rows]))
        for name in rows[0].features
    }


def run_by_shape(
    forward: Callable[[Tensors], Mapping[str, torch.Tensor]],
    rows: Sequence[ArrayRow],
    *,
    budget: int,
    meter: Meter,
    postprocess: Postprocess = unprocessed,
    collate: Callable[[Sequence[Any]], Tensors] = stack,
) -> list[RowOutcome]:
    """Run every row once, grouped by shape, and return the outcome of each row in their order.

    A forward pass that raises a :class:`RequestError` ends with it for its own rows only. Rows that
    do not fit in memory together run in halves.

    Args:
        budget: the maximum cost of the rows of one forward; a more expensive row runs alone.
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
            if not queue_halves(failure, group, waiting):
                for index in group:
                    results[index] = failure
            continue
        for place, index in enumerate(group):
            found = {name: array[place] for name, array in arrays.items()}
            results[index] = postprocess(rows[index], found)
        meter.count(forwards=1)
    return results


def run_in_groups(
    run: Callable[[Sequence[RowT]], Sequence[RowOutcome]],
    rows: Sequence[RowT],
    key: Callable[[RowT], Hashable],
) -> list[RowOutcome]:
    """Run rows with equal keys together, and return the outcome of each row in their order."""
    groups = defaultdict[Hashable, list[int]](list)
    for number, row in enumerate(rows):
        groups[key(row)].append(number)
    outcomes: dict[int, RowOutcome] = {}
    for numbers in groups.values():
        found = run([rows[number] for number in numbers])
        outcomes.update(zip(numbers, found, strict=True))
    return [outcomes[number] for number in range(len(rows))]


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


def queue_halves(error: RequestError, group: list[Item], waiting: deque[list[Item]]) -> bool:
    """Have the halves of a group run next if memory does not suffice for all of it; return whether.

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
