from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.checkpoints.temperature_scaling import FILE
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.types.decisions import PREDICATE, Option, Question
from hf_serve.scripts.archives.labelled import labelled_questions
from hf_serve.scripts.archives.packing import pack
from tests import tiny
from tests.sentences import refused

MODE = "sequence_classification"
PREDICATES = {"type": "predicate", "instructions": "It is fine."}
CHOICE = {"type": "choice", "instructions": "Which?", "choices": [{"value": "a"}, {"value": True}]}


def write(folder: Path, *lines: Any, **handler: Any) -> Path:
    """Write a YAML file and the labelled rows that it names."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "rows.jsonl").write_text("\n".join(texts))
    config = {"handler": {"mode": MODE, "labelled": "rows.jsonl", **handler}}
    (folder / "model.yaml").write_text(json.dumps(config))
    return folder / "model.yaml"


def read(path: Path) -> Any:
    return labelled_questions(path, ModelConfig.read(path))


def test_a_line_is_a_body_of_decisions_with_its_answers(tmp_path: Path) -> None:
    body = {"input": "A film.", "questions": [PREDICATES, CHOICE], "answers": [True, "a"]}
    first, second = read(write(tmp_path, body, ""))
    assert first.question == Question("predicate", "A film.", "It is fine.", PREDICATE)
    assert (first.answer, second.answer) == (0, 0)
    assert second.question.options == [Option("a"), Option("true")]
    assert second.place == f"{tmp_path / 'rows.jsonl'}, line 1, questions[1]"


def test_the_labels_of_all_lines_are_the_options_of_each(tmp_path: Path) -> None:
    lines = [{"inputs": text, "label": label} for text, label in (("A", "x"), ("B", "w"))]
    first, second = read(write(tmp_path, *lines))
    assert first.question == Question("choice", "A", "", [Option("w"), Option("x")])
    assert (first.answer, second.answer) == (1, 0)


def test_a_yaml_without_labelled_rows_has_none(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(json.dumps({"handler": {"mode": MODE}}))
    assert read(path) == []


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("{", ["line 1", "JSON"]),
        ("[]", ["line 1", "object"]),
        ({"inputs": "a"}, ["line 1", "input"]),
        ({"inputs": "a", "label": "x"}, ["line 1", "2"]),
        ({"inputs": {"text": "a"}, "label": "x"}, ["line 1", "inputs"]),
        ({"input": "a", "questions": [PREDICATES]}, ["line 1", "answer", 1]),
        ({"input": "a", "questions": [PREDICATES], "answers": ["maybe"]}, ["maybe"]),
        ({"input": "a", "questions": [{**CHOICE, "choices": None}], "answers": ["a"]}, ["choices"]),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: Any, facts: list[Any]) -> None:
    with refused(WrongConfig, *facts):
        read(write(tmp_path, line))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    (tmp_path / "rows.jsonl").unlink()
    with refused(WrongConfig, "handler.labelled", "rows.jsonl"):
        read(path)


def test_an_archive_has_the_calibration_of_its_model(tmp_path: Path) -> None:
    labels = ("NEGATIVE", "NEUTRAL", "POSITIVE")
    lines = [{"inputs": f"Nina sings {n}.", "label": labels[n % 3]} for n in range(30)]
    model = str(tiny.write(tmp_path / "checkpoint", MODE))
    path = write(tmp_path, *lines, model_name=model, temperature="measured")
    store = tmp_path / "store"
    archive = pack(path, export_path=store, checked=False)
    with zipfile.ZipFile(archive.path) as files:
        found = json.loads(files.read(FILE))
    assert archive.calibration is not None and found["questions"] == 30
    assert found["temperature"] == archive.calibration.temperature
    assert f"temperature {found['temperature']:.2f}" in str(archive.calibration)
    same = pack(path, export_path=store, checked=False)
    assert not same.made and same.calibration == archive.calibration
