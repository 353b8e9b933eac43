"""`bench_model.py`: the formats of a model are measured, and one is recommended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from hf_serve.scripts import bench_model
from hf_serve.scripts.benchmark.session import Measured, Session
from tests.sentences import Sentence

FIGURES = {"rows_per_second": 10.0, "fidelity": None, "tokens_per_second": None, "batch": 1}
FIGURES |= {"p50_ms": 1.0, "p99_ms": 2.0, "bytes": 1, "size": 1, "refused": 0}


def run(model: Path, folder: Path, **options: Any) -> int:
    try:
        bench_model.main(str(model), folder=folder, **options)
    except (typer.Exit, SystemExit) as ended:
        return int(getattr(ended, "exit_code", getattr(ended, "code", 1)))
    return 0


def test_formats_are_shown_as_they_are_measured_and_one_is_recommended(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Session, "measure", lambda _, each: Measured(each, FIGURES))
    assert run(checkpoint, tmp_path, only=["pretrained,torchscript"]) == 0
    out, err = capsys.readouterr()
    assert "pretrained, float32: 10 rows/s" in err
    assert "torchscript, float32" in out
    assert "  save_mode: pretrained\n  dtype: float32" in out
    assert (tmp_path / "name" / "plot.svg").is_file()


def test_figures_are_printed_as_json(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Session, "measure", lambda _, each: Measured(each, FIGURES))
    run(checkpoint, tmp_path, only=["pretrained"], as_json=True)
    first = json.loads(capsys.readouterr().out)[0]
    assert first["keys"] == {"save_mode": "pretrained", "dtype": "float32"}
    assert first["figures"]["rows_per_second"] == 10


def test_ctrl_c_shows_what_was_measured(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def measure(_: Session, each: Any) -> Measured:
        if each.save_mode != "pretrained":
            raise KeyboardInterrupt
        return Measured(each, FIGURES)

    monkeypatch.setattr(Session, "measure", measure)
    assert run(checkpoint, tmp_path, only=["pretrained", "torchscript"]) == 130
    out, err = capsys.readouterr()
    assert "pretrained, float32" in out
    assert err.splitlines()[-1].startswith("Interrupted after")


def test_an_unknown_word_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        run(checkpoint, tmp_path, only=["opnvino"])
    assert str(caught.value) == Sentence("opnvino", "openvino")
    with pytest.raises(typer.BadParameter) as caught:
        run(checkpoint, tmp_path, mode="fill_maks")
    assert str(caught.value) == Sentence("fill_maks", "fill_mask")


@pytest.mark.nightly
@pytest.mark.openvino
def test_a_checkpoint_is_measured(checkpoint: Path, tmp_path: Path, capsys: Any) -> None:
    options = {"only": ["pretrained", "openvino"], "seconds": 0.1, "as_json": True}
    assert run(checkpoint, tmp_path, **options) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["format"] for each in found if each["problem"] is None][:1] == [
        "pretrained, float32"
    ]
    assert any(each["keys"]["save_mode"] == "openvino" and each["figures"] for each in found)
