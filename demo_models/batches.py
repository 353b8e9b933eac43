"""Batches of rows: token ids of about the same length, or tensors of one shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

import torch
from torch import Tensor

Feature = dict[str, Any]
Item = TypeVar("Item")

# A pool of this many batches is sorted by length; more would make the batches too similar.
POOL = 25


def batches(
    features: list[Feature], size: int, pad_id: int | None, rng: Random
) -> Iterator[dict[str, Any]]:
    """Yield every feature once, in random order, as batches padded to their longest row."""
    pools = chunks(rng.sample(features, len(features)), POOL * size)
    together = [rows for pool in pools for rows in chunks(sorted(pool, key=length), size)]
    for rows in rng.sample(together, len(together)):
        yield collate(rows, pad_id)


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Split a list into chunks of a size; the last may be shorter."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def collate(rows: Sequence[Feature], pad_id: int | None) -> dict[str, Any]:
    """Pad rows on the right: ids with `pad_id`, labels with -100 (no loss), the rest with 0.

    Returns:
        Tensors of shape (rows, longest of the key); (rows,) for what is one number a row; (rows,
        …) for tensors; and lists of mappings, such as the boxes of an image.
    """
    padding = {"input_ids": pad_id or 0, "labels": -100}
    return {key: _padded([row[key] for row in rows], padding.get(key, 0)) for key in rows[0]}


def length(feature: Feature) -> int:
    """Return the number of tokens of a row; 0 for one without tokens."""
    return len(feature.get("input_ids", ()))


def _padded(values: Sequence[Any], filler: int) -> Any:
    if isinstance(values[0], Mapping):
        return list(values)
    if isinstance(values[0], Tensor):
        return torch.stack(list(values))
    longest = max((len(value) for value in values if isinstance(value, list)), default=0)
    return torch.tensor(
        [
            value + [filler] * (longest - len(value)) if isinstance(value, list) else value
            for value in values
        ]
    )
