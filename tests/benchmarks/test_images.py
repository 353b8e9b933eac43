"""Run the parts of the benchmark of image classification without a server."""

from __future__ import annotations

from pathlib import Path

from benchmarks.image.costs import image_costs
from benchmarks.image.models import vit_base
from benchmarks.image.pictures import photographs


def test_decoding_and_preprocessing_are_measured_apart(tmp_path: Path) -> None:
    costs = image_costs(vit_base(tmp_path / "model", tiny=True), photographs(1))
    assert costs.decode_ms > 0 and costs.preprocess_ms > 0 and costs.processor_ms > 0
