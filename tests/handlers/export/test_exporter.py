"""How rows are split between calibrating an export and measuring it, and which are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig
from handlers.export.exporter import _split
from handlers.formats import export
from handlers.schemas.request import Request, Sample

MODE = "sequence_classification"

EASY, HARD = Request("It was good."), Request("It wasn't bad, far from it.")


@pytest.mark.parametrize("rows", [[EASY, HARD] * 20, [EASY] * 20 + [HARD] * 20])
def test_both_halves_have_rows_of_each_kind_in_any_order_of_the_file(
    rows: list[Request],
) -> None:
    for half in _split(rows):
        assert len(half) == 20
        assert {row.inputs for row in half} == {EASY.inputs, HARD.inputs}


def test_a_single_row_is_used_for_calibration_and_measurement() -> None:
    assert _split([EASY]) == ([EASY], [EASY])


def refusal(checkpoint: Path, target: Path, rows: Sequence[Request], **handler: object) -> str:
    """Return the message of the error with which rows are refused for a bfloat16 graph."""
    settings = {"mode": MODE, "save_mode": "torchscript", "dtype": "bfloat16", **handler}
    with pytest.raises(WrongConfig) as caught:
        export(checkpoint, ModelConfig.parse({"handler": settings}), target, rows)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (Sample(7), "is refused (inputs must be"),
        (Sample("fine", {"top_k": "all"}), "is refused (parameters: top_k "),
        (Sample("secret " * 99), "is refused (the text has "),
    ],
)
def test_a_refused_row_is_named_by_its_line_and_not_quoted(
    checkpoint: Callable[..., Path], tmp_path: Path, row: Sample, reason: str
) -> None:
    fine = Sample("fine", place="rows.jsonl, line 1")
    rows = [fine, replace(row, place="rows.jsonl, line 3"), fine]
    message = refusal(checkpoint(MODE), tmp_path, rows, truncation=False)
    assert message.startswith(f"rows.jsonl, line 3: {reason}")
    assert message.endswith("); correct or remove this row.")
    assert "secret" not in message and ".)" not in message


def test_a_refused_row_without_a_file_is_reported(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    message = refusal(checkpoint(MODE), tmp_path, [Request(7)])
    assert message.startswith("a row of handler.calibration: is refused (")
