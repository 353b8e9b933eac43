"""Run the parts of the benchmark of image classification without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.image.costs import image_costs
from benchmarks.image.models import vit_base
from benchmarks.image.pictures import photographs
from benchmarks.images import main


def test_unknown_names_are_reported_before_the_first_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, ("--only", "kit,unknown"))
    assert result.exit_code != 0
    assert "'unknown' is not a contender; choose from kit," in " ".join(
        result.output.replace("│", " ").split()
    )


def test_decoding_and_preprocessing_are_measured_apart(tmp_path: Path) -> None:
    costs = image_costs(vit_base(tmp_path / "model", tiny=True), photographs(1))
    assert costs.decode_ms > 0 and costs.preprocess_ms > 0 and costs.processor_ms > 0
