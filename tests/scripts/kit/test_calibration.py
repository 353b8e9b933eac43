from __future__ import annotations

import json
from pathlib import Path

import pytest

from handlers.config import ModelConfig
from handlers.errors import WrongConfig
from handlers.requests import Request
from handlers.words import modes
from scripts.kit.calibration import samples
from scripts.kit.demo_models.calibration import FILE, bodies
from scripts.kit.places import ARTIFACTS


def config(**handler: str) -> ModelConfig:
    return ModelConfig.parse({"handler": {"mode": "sequence_classification", **handler}})


@pytest.mark.parametrize("mode", modes())
def test_the_kits_own_rows_are_those_that_its_lessons_write(mode: str) -> None:
    lines = (ARTIFACTS / mode / FILE).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == bodies(mode)


def test_a_yaml_names_its_rows_from_its_own_folder(tmp_path: Path) -> None:
    line = '{"inputs": "fine", "parameters": {"top_k": 2}}\n{"inputs": "dull"}\n'
    (tmp_path / "rows.jsonl").write_text(line, encoding="utf-8")
    found = samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))
    assert found == [Request("fine", {"top_k": 2}), Request("dull")]


@pytest.mark.parametrize(
    "line", ["no JSON", "[]", "{}", '"text"', '{"inputs": "a", "parameters": 3}']
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "rows.jsonl").write_text(f'{{"inputs": "fine"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(WrongConfig, match="line 2: is no request"):
        samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongConfig, match=r"handler\.calibration"):
        samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))
