from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_serve.handlers.batching.padding import (
    Padding,
    RunOptions,
    Side,
    group_by_length,
    pad,
    run_padded,
)
from hf_serve.handlers.batching.rows import Row, require_outputs
from hf_serve.handlers.errors import DeadlineExceeded
from hf_serve.handlers.telemetry.metrics import Meter

LENGTHS = st.lists(st.integers(1, 50), max_size=40)
ROWS = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=12), min_size=1, max_size=12)
SIDES = st.sampled_from(["left", "right"])


def echo(batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """Answer each token with its double, and each row with its sum; padding must not count."""
    real = batch["input_ids"] * batch["attention_mask"]
    assert torch.equal(batch["input_ids"] == 0, batch["attention_mask"] == 0)
    return {"doubles": 2.0 * batch["input_ids"], "sums": real.sum(dim=1)}


@given(LENGTHS, st.integers(1, 200))
def test_each_row_is_in_one_group_within_the_budget(lengths: list[int], budget: int) -> None:
    groups = list(group_by_length(lengths, budget))
    assert sorted(number for group in groups for number in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[at] for at in group) <= budget


@given(LENGTHS)
def test_rows_of_one_length_fill_the_budget(lengths: list[int]) -> None:
    assert len(list(group_by_length([10] * len(lengths), 40))) == -(-len(lengths) // 4)


@given(ROWS, SIDES, st.integers(1, 60), st.integers(1, 8))
def test_every_row_gets_its_own_outputs_without_padding(
    rows: list[list[int]], side: Side, budget: int, min_width: int
) -> None:
    meter = Meter()
    outcomes = run_padded(
        echo,
        [Row({"input_ids": ids}) for ids in rows],
        RunOptions(
            padding=Padding({"input_ids": 0}, side, min_width=min_width),
            budget=budget,
            per_token=("doubles",),
            meter=meter,
        ),
    )
    outputs = require_outputs(outcomes)
    assert [output["doubles"].tolist() for output in outputs] == [
        [2.0 * number for number in ids] for ids in rows
    ]
    assert [int(output["sums"]) for output in outputs] == [sum(ids) for ids in rows]
    assert meter.counts["tokens"] == sum(map(len, rows))
    assert meter.counts["slots"] >= max(meter.counts["tokens"], len(rows) * min_width)


@pytest.mark.parametrize(
    ("side", "ids", "kinds"),
    [("right", [[5, 6], [7, 9]], [[0, 1], [1, 3]]), ("left", [[5, 6], [9, 7]], [[0, 1], [3, 1]])],
)
def test_short_rows_are_filled_with_each_inputs_own_id(
    side: Side, ids: list[list[int]], kinds: list[list[int]]
) -> None:
    rows = [
        Row({"input_ids": [5, 6], "token_type_ids": [0, 1]}),
        Row({"input_ids": [7], "token_type_ids": [1]}),
    ]
    batch = pad(rows, Padding({"input_ids": 9, "token_type_ids": 3}, side))
    assert batch["input_ids"].tolist() == ids
    assert batch["token_type_ids"].tolist() == kinds
    assert batch["attention_mask"].sum(dim=1).tolist() == [2, 1]
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())


def test_outputs_of_half_precision_come_back_as_numpy() -> None:
    outcomes = run_padded(
        lambda batch: {"logits": batch["input_ids"].to(torch.bfloat16)},
        [Row({"input_ids": [1, 2]})],
        RunOptions(padding=Padding({}), budget=8, per_token=("logits",), meter=Meter()),
    )
    (output,) = require_outputs(outcomes)
    assert output["logits"].dtype == np.float32


def test_an_error_of_a_forward_pass_stays_with_its_rows() -> None:
    def refuse_long_rows(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if batch["input_ids"].shape[1] > 2:
            raise DeadlineExceeded
        return {"logits": batch["input_ids"]}

    long, short = run_padded(
        refuse_long_rows,
        [Row({"input_ids": [1] * 8}), Row({"input_ids": [1]})],
        RunOptions(padding=Padding({}), budget=8, per_token=("logits",), meter=Meter()),
    )
    assert isinstance(long, DeadlineExceeded)
    assert require_outputs([short])


def test_an_input_with_several_numbers_for_each_token_has_them_in_a_third_dimension() -> None:
    rows = [
        Row({"input_ids": [5, 6], "token_type_ids": [[1, 2, 3], [4, 5, 6]]}),
        Row({"input_ids": [7], "token_type_ids": [9]}),
    ]
    batch = pad(rows, Padding({"input_ids": 0}, sizes={"token_type_ids": 3}))
    assert batch["token_type_ids"].tolist() == [[[1, 2, 3], [4, 5, 6]], [[9, 9, 9], [0, 0, 0]]]
    assert batch["input_ids"].tolist() == [[5, 6], [7, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
