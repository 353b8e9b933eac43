"""Run the parts of the benchmark of image classification without a server."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from benchmarks.contenders.litserve_images import LitServeImages
from benchmarks.image.costs import image_costs
from benchmarks.image.models import vit_base
from benchmarks.image.pictures import SIZE, photographs
from benchmarks.image.table import images_section
from benchmarks.images import main

MACHINE = {"processor": "A processor", "cores": 2, "instructions": ["avx2"], "load": 0.1}


def contender(precision: str, speed: float, engine: float | None = None) -> dict[str, Any]:
    load = {"rows_per_second": speed, "p50_ms": 1.0, "p99_ms": 2.0, "errors": 0}
    turn = {"loads": {"32": load}, "engine": engine and {"rows_per_second": engine}}
    return {"precision": precision, "failure": None, "turns": [turn]}


def test_ratios_are_shown_with_their_targets_and_the_share_of_decoding() -> None:
    document = {
        "machine": MACHINE,
        "rounds": 1,
        "tiny": False,
        "costs": {"decode_ms": 2.0, "preprocess_ms": 3.0, "processor_ms": 4.0},
        "contenders": {
            "kit": contender("bfloat16", 30, engine=40),
            "litserve": contender("float32", 10),
            "litserve_bfloat16": {"precision": "bfloat16", "failure": "It ended.", "turns": []},
        },
    }
    page = images_section(document)
    row = next(line for line in page.splitlines() if line.startswith("| kit |"))
    assert "3.00 (3.00 to 3.00, target 3)" in row
    assert "0.75 (0.75 to 0.75, target 0.85) | 3.0% |" in row
    assert "- litserve_bfloat16 failed: It ended." in page


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


def test_pictures_are_jpeg_files_of_one_size_and_the_same_each_time() -> None:
    files = photographs(2)
    assert files == photographs(2)
    assert files[0] != files[1]
    image = Image.open(BytesIO(base64.b64decode(files[0])))
    assert (image.format, image.size) == ("JPEG", SIZE)


def test_decoding_and_preprocessing_are_measured_apart(tmp_path: Path) -> None:
    costs = image_costs(vit_base(tmp_path / "model", tiny=True), photographs(1))
    assert costs.decode_ms > 0 and costs.preprocess_ms > 0 and costs.processor_ms > 0


def test_litserve_has_the_checkpoint_in_a_dtype(tmp_path: Path) -> None:
    server = LitServeImages("litserve_bfloat16", tmp_path, tmp_path, "bfloat16", 16)
    command = [str(each) for each in server.command(8000)]
    assert command[2:5] == [str(tmp_path), "bfloat16", "8000"]
    assert server.name == "litserve_bfloat16"
