"""`make bench-gpu` without a GPU: figures, reasons of missing ones, and the end of the time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig

from benchmarks import gpu
from benchmarks.gpu import Case


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run(only, **options)` returns the results of a trial run."""
    monkeypatch.setattr(gpu, "WORK", tmp_path)

    def measure(only: str, **options: Any) -> Any:
        gpu.main(device="cpu", small=True, only=[only], out=tmp_path / "out", **options)
        return json.loads((tmp_path / "out" / "gpu.json").read_text(encoding="utf-8"))

    return measure


@pytest.mark.nightly
def test_a_part_has_figures_a_table_and_a_plot(run: Any, tmp_path: Path) -> None:
    found = run("classification,transformers,vllm")
    loads = {each["load"]: each for each in found["figures"]}
    assert loads.keys() == {"mixed", "128", "512"}
    assert all(0 < each["share_of_peak"] < 1 for each in loads.values())
    (failure,) = found["failures"]
    assert failure["contender"] == "vllm"
    assert "not installed" in failure["reason"]
    table = (tmp_path / "out" / "gpu.md").read_text(encoding="utf-8")
    assert table.count("| transformers |") == len(loads)
    assert (tmp_path / "out" / "gpu.svg").is_file()


def test_figures_before_the_end_of_the_time_are_kept(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(contender: str, cases: list[Case], *_: Any) -> Any:
        if contender == "peak":
            return [{"case": "peak", "load": "product", "rate": 1e3}], None
        return [{"case": cases[0].name, "load": "mixed", "rate": 2.0}], "it did not end within 9 s"

    monkeypatch.setattr(gpu, "_measure", measure)
    found = run("classification,kit")
    (figure,) = found["figures"]
    assert figure["per_second"] == 2 * 16
    assert found["failures"] == [{"contender": "kit", "reason": "it did not end within 9 s"}]
    assert run("classification,kit", time_limit=1)["failures"][0]["reason"] == "no time was left"


def test_operations_are_those_of_matrices_and_of_attention_within_a_row() -> None:
    config = BertConfig()
    weights = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert gpu._forward(config, 512) == 2 * weights * 512 + 12 * 4 * 768 * 512 * 512
