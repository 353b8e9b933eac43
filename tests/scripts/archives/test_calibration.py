from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo_models.calibration import FILE, bodies
from demo_models.trainers import modes
from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig
from handlers.types.request import Sample
from scripts.archives.calibration import samples
from scripts.paths import ARTIFACTS
from tests.sentences import refused


def config(**handler: str) -> ModelConfig:
    return ModelConfig.parse({"handler": {"mode": "sequence_classification", **handler}})


def test_the_default_calibration_files_match_the_trainers() -> None:
    for mode in modes():
        lines = (ARTIFACTS / mode / FILE).read_text(encoding="utf-8").splitlines()
        assert lines, mode
        assert len(lines) == len(set(lines)), f"{mode} has a row twice"
        if written := bodies(mode):
            assert [json.loads(line) for line in lines] == written, mode


def test_the_calibration_path_is_relative_to_the_yaml_file(tmp_path: Path) -> None:
    line = '{"inputs": "fine", "parameters": {"top_k": 2}}\n{"inputs": "dull"}\n'
    (tmp_path / "rows.jsonl").write_text(line, encoding="utf-8")
    found = samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))
    assert found == [Sample("fine", {"top_k": 2}), Sample("dull")]


@pytest.mark.parametrize(
    "line", ["no JSON", "[]", "{}", '"text"', '{"inputs": "a", "parameters": 3}']
)
def test_an_invalid_line_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "rows.jsonl").write_text(f'{{"inputs": "fine"}}\n{line}\n', encoding="utf-8")
    with refused(WrongConfig, "line 2"):
        samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))


def test_a_missing_calibration_file_is_an_error(tmp_path: Path) -> None:
    with refused(WrongConfig, "handler.calibration"):
        samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))


def test_a_checkpoint_of_a_mode_without_a_default_file_has_no_rows(
    tmp_path: Path,
) -> None:
    assert samples(tmp_path / "model.yaml", config(dtype="auto"), tmp_path) == []
    with refused(WrongConfig, "handler.calibration"):
        samples(tmp_path / "model.yaml", config(save_mode="openvino"), tmp_path)


@pytest.mark.openvino
def test_rows_are_required_where_auto_is_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handlers.checkpoints.devices.find_accelerator", lambda: None)
    assert samples(tmp_path / "model.yaml", config(save_mode="auto"), tmp_path) == []
    exported = config(mode="text_generation", save_mode="auto")
    with refused(WrongConfig, "handler.calibration"):
        samples(tmp_path / "model.yaml", exported, tmp_path)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding_is_an_error(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "rows.jsonl").write_text('{"inputs": "très bon"}\n', encoding=encoding)
    with refused(WrongConfig, "rows.jsonl", "UTF-8"):
        samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n \n"])
def test_byte_order_marks_and_blank_lines_are_skipped(
    tmp_path: Path, encoding: str, end: str
) -> None:
    text = end.join(['{"inputs": "fine"}', '{"inputs": "dull"}', ""])
    (tmp_path / "rows.jsonl").write_bytes(text.encode(encoding))
    found = samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))
    assert [each.inputs for each in found] == ["fine", "dull"]


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\x85d"
    line = json.dumps({"inputs": text}, ensure_ascii=False)
    (tmp_path / "rows.jsonl").write_text(line, encoding="utf-8")
    (found,) = samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))
    assert found.inputs == text


def test_a_list_of_inputs_becomes_one_request_per_item(tmp_path: Path) -> None:
    line = '{"inputs": ["good film", ["good", "film"]], "parameters": {"top_k": 2}}'
    (tmp_path / "rows.jsonl").write_text(line, encoding="utf-8")
    assert samples(tmp_path / "model.yaml", config(calibration="rows.jsonl")) == [
        Sample("good film", {"top_k": 2}, alone=False),
        Sample(["good", "film"], {"top_k": 2}, alone=False),
    ]


def test_chat_messages_are_one_request(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"inputs": chat}), encoding="utf-8")
    found = samples(
        tmp_path / "model.yaml", config(mode="text_generation", calibration="rows.jsonl")
    )
    assert found == [Sample(chat)]


def test_an_empty_list_of_inputs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('\n{"inputs": []}', encoding="utf-8")
    with refused(WrongConfig, "line 2"):
        samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))


def test_each_sample_has_its_file_and_line(tmp_path: Path) -> None:
    lines = '{"inputs": "fine"}\n\n{"inputs": ["dull", "bad"]}\n'
    path = tmp_path / "rows.jsonl"
    path.write_text(lines, encoding="utf-8")
    found = samples(tmp_path / "model.yaml", config(calibration="rows.jsonl"))
    assert [each.place for each in found] == [
        f"{path}, line 1",
        f"{path}, line 3, inputs[0]",
        f"{path}, line 3, inputs[1]",
    ]
    assert str(path) not in repr(found)
