"""Rows of arrays: equal shapes share a forward within a budget."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from hf_serve.handlers.batching.padding import ArrayRow, Tensors, run_by_shape
from hf_serve.handlers.batching.rows import require_outputs
from hf_serve.handlers.errors import BadRequest, OutOfMemory
from hf_serve.handlers.telemetry.metrics import Meter

SIDES = (2, 3, 2, 2, 3, 2)


def rows() -> list[ArrayRow]:
    return [
        ArrayRow({"pixels": np.full((side, side), number, dtype=np.float32)}, side * side)
        for number, side in enumerate(SIDES)
    ]


class Summing:
    """Sums the pixels of each row; keeps the shape of each batch, and fails where it is told."""

    def __init__(self, fails: type[BadRequest] | type[OutOfMemory] | None = None) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.fails = fails

    def __call__(self, batch: Tensors) -> Mapping[str, torch.Tensor]:
        pixels = batch["pixels"]
        self.shapes.append(tuple(pixels.shape))
        if self.fails is OutOfMemory and len(pixels) > 1:
            raise OutOfMemory
        if self.fails is BadRequest and pixels.shape[-1] == 3:
            raise BadRequest("three")
        return {"sums": pixels.sum((1, 2))}


SUMS = [number * side * side for number, side in enumerate(SIDES)]


def test_rows_of_one_shape_share_a_forward_within_the_budget() -> None:
    model, meter = Summing(), Meter()
    found = run_by_shape(model, rows(), budget=12, meter=meter)
    assert [float(each["sums"]) for each in require_outputs(found)] == SUMS
    assert sorted(model.shapes) == [(1, 2, 2), (1, 3, 3), (1, 3, 3), (3, 2, 2)]
    assert meter.counts["forwards"] == 4


def test_rows_that_do_not_fit_in_memory_together_run_in_halves() -> None:
    model = Summing(OutOfMemory)
    found = run_by_shape(model, rows(), budget=100, meter=Meter())
    assert [float(each["sums"]) for each in require_outputs(found)] == SUMS


def test_an_error_is_that_of_the_rows_of_its_forward() -> None:
    found = run_by_shape(Summing(BadRequest), rows(), budget=100, meter=Meter())
    failed = [number for number, each in enumerate(found) if isinstance(each, BadRequest)]
    assert failed == [number for number, side in enumerate(SIDES) if side == 3]
