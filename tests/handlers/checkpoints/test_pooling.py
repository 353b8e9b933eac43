"""Reductions give the same results in packed rows, in padded ones and for each text alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hf_serve.handlers.batching.padding import Padding, pad
from hf_serve.handlers.batching.rows import Row, TrialRows
from hf_serve.handlers.batching.sequence_packing import pack
from hf_serve.handlers.checkpoints.pooling import ModelWithPooling, PoolingHead, TextSlots
from hf_serve.handlers.formats.packable import as_packable
from tests import families

LENGTHS = (3, 5, 1, 4)


class Sum(PoolingHead):
    """The sum over the tokens that a row does not mark."""

    writes = "sum"
    inputs = ("marks",)

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        return slots.without(inputs["marks"]).sum(values)


class Largest(PoolingHead):
    """The largest logits of each text."""

    reads = "logits"
    writes = "largest"

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        return slots.maximum(values)


@pytest.fixture(scope="module")
def vectors() -> list[Any]:
    """The vectors of the tokens of each text."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(length, 6, generator=generator) for length in LENGTHS]


def layouts(vectors: list[Any]) -> dict[str, tuple[torch.Tensor, TextSlots]]:
    """Return the vectors of all texts in packed and in padded rows, with NaN in the padding."""
    texts = [Row({"input_ids": [0] * length}) for length in LENGTHS]
    packed = pack(texts, [[0, 1], [2, 3]], Padding({}))
    width = packed.segments.shape[1]
    values = torch.full((2, width, 6), torch.nan)
    for text in packed.texts:
        values[text.row, text.start : text.start + LENGTHS[text.index]] = vectors[text.index]
    found = {"packed": (values, TextSlots.of_packed(packed.inputs))}
    for side in ("left", "right"):
        mask = pad(texts, Padding({}, side))["attention_mask"]
        values = torch.full((*mask.shape, 6), torch.nan)
        values[mask.bool()] = torch.cat(vectors)
        found[side] = (values, TextSlots.of_mask(mask))
    return found


@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_each_text_is_reduced_by_itself(vectors: list[Any], layout: str) -> None:
    values, slots = layouts(vectors)[layout]
    found = {
        "sum": slots.sum(values),
        "weighted": slots.sum(values, slots.positions),
        "maximum": slots.maximum(values.nan_to_num(9.0)),
        "first": slots.first(values),
        "last": slots.last(values),
        "lengths": slots.lengths,
    }
    for number, text in enumerate(vectors):
        weights = torch.arange(1, len(text) + 1)[:, None]
        expected = {
            "sum": text.sum(0),
            "weighted": (text * weights).sum(0),
            "maximum": text.amax(0),
            "first": text[0],
            "last": text[-1],
            "lengths": torch.tensor([len(text)]),
        }
        for name, each in expected.items():
            torch.testing.assert_close(found[name][number], each)


def test_marked_tokens_are_left_out_and_a_text_of_them_alone_is_zero() -> None:
    values = torch.ones(2, 3, 1)
    slots = TextSlots.of_mask(torch.ones(2, 3, dtype=torch.long))
    marks = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert Sum()(values, slots, marks=marks).tolist() == [[1], [0]]
    assert slots.without(marks).lengths.tolist() == [[1], [1]]


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen2", "qwen3"])
def test_a_reduced_model_is_packed(family: str) -> None:
    reduced = ModelWithPooling(families.module(family, "token_classification"), Largest()).eval()
    rows = [Row({"input_ids": list(range(10, 10 + length))}) for length in (9, 4, 6, 9)]
    trial = TrialRows([rows], float("inf"))
    packable = as_packable(reduced, trial, Padding({}), ("largest",), ())
    assert packable is not None and packable.pools
    packed = pack(rows, [[0, 1], [2, 3]], Padding({}))
    with torch.inference_mode():
        found = packable.forward(packed.inputs)["largest"]
        for text, vector in zip(packed.texts, found, strict=True):
            alone = reduced(**pad([rows[text.index]], Padding({})))["largest"][0]
            np.testing.assert_allclose(vector, alone, atol=1e-4)
