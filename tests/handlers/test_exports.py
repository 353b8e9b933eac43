"""How rows are parted between calibrating an export and measuring it."""

from __future__ import annotations

import pytest

from handlers.exports import _halves
from handlers.requests import Request

EASY, HARD = Request("It was good."), Request("It wasn't bad, far from it.")


@pytest.mark.parametrize("rows", [[EASY, HARD] * 20, [EASY] * 20 + [HARD] * 20])
def test_both_halves_hold_rows_of_each_kind_however_the_file_is_ordered(
    rows: list[Request],
) -> None:
    for half in _halves(rows):
        assert len(half) == 20
        assert {row.inputs for row in half} == {EASY.inputs, HARD.inputs}


def test_a_lone_row_is_calibrated_on_and_measured() -> None:
    assert _halves([EASY]) == ([EASY], [EASY])
