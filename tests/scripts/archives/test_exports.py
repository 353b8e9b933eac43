"""An export is kept until something that it depends on changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest

from hf_serve.demo_models.calibration import FILE, bodies
from hf_serve.demo_models.trainers import modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.types.request import Sample
from hf_serve.scripts.archives.exports import EXPORTING, exported, samples
from hf_serve.scripts.paths import ARTIFACTS
from tests import tiny
from tests.sentences import refused
from tests.test_architecture import FILES, HANDLERS, imports, package_of

MODE = "sequence_classification"
Kept = Callable[..., bool]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Whether a YAML has the export of the first one: `kept({"batchSize": 2}, dtype="auto")`."""
    exports: list[str] = []

    def export(checkpoint: Path, config: ModelConfig, target: Path, samples: Any) -> None:
        exports.append(config.handler.save_mode)
        (target / "model.pt").touch()

    monkeypatch.setattr("hf_serve.handlers.formats.export", export)
    (tmp_path / "rows.jsonl").write_text('{"inputs": "Ada sings"}', encoding="utf-8")
    model = tiny.write(tmp_path / "model", MODE)

    def ask(keys: dict[str, Any] | None = None, **handler: Any) -> bool:
        own = {"mode": MODE, "save_mode": "torchscript", "calibration": "rows.jsonl", **handler}
        before = len(exports)
        config = ModelConfig.parse({**(keys or {}), "handler": own})
        files = exported(tmp_path / "m.yaml", config, model, tmp_path / "build")
        assert files.keys() == {"model.pt"}
        return len(exports) == before

    assert not ask()
    return ask


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the code of the kit, which can be changed."""
    folder = tmp_path / "handlers"
    shutil.copytree(HANDLERS, folder)
    monkeypatch.setattr("hf_serve.scripts.archives.exports.HANDLERS", folder)
    return folder


@pytest.mark.parametrize(
    ("keys", "handler"),
    [
        ({}, {}),
        ({"minWorkers": 2, "maxWorkers": 3, "jobQueueSize": 50}, {}),
        ({"responseTimeout": 300, "maxBatchDelay": 7}, {"predict_timeout": 20.0}),
    ],
)
def test_keys_of_serving_alone_keep_an_export(kept: Kept, keys: Any, handler: Any) -> None:
    assert kept(keys, **handler)


@pytest.mark.parametrize("handler", [{"max_length": 16}, {"save_mode": "onnx"}])
def test_keys_of_the_model_do_not(kept: Kept, handler: dict[str, Any]) -> None:
    assert not kept(**handler)


def test_a_file_in_a_folder_of_the_checkpoint_does_not(kept: Kept, tmp_path: Path) -> None:
    """The time of a folder stays the same where a file in it is written again."""
    layer = tmp_path / "model" / "2_Dense" / "model.safetensors"
    layer.parent.mkdir()
    layer.write_bytes(b"1")
    assert not kept()
    layer.write_bytes(b"23")
    assert not kept()
    assert kept()


def test_a_yaml_is_exported_once_by_commands_that_run_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports: list[Path] = []

    def export(checkpoint: Path, config: ModelConfig, target: Path, samples: Any) -> None:
        exports.append(target)
        assert all(started.acquire(timeout=9) for _ in range(2))
        (target / "model.pt").write_text("whole")

    monkeypatch.setattr("hf_serve.handlers.formats.export", export)
    (tmp_path / "rows.jsonl").write_text('{"inputs": "Ada sings"}', encoding="utf-8")
    own = {"mode": MODE, "save_mode": "torchscript", "calibration": "rows.jsonl"}
    config = ModelConfig.parse({"handler": own})
    model, started = tiny.write(tmp_path / "model", MODE), Semaphore(0)

    def ask(_: int) -> str:
        started.release()
        files = exported(tmp_path / "m.yaml", config, model, tmp_path / "build")
        return files["model.pt"].read_text()

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(ask, range(2))) == ["whole"] * 2
    assert len(exports) == 1


def test_code_that_an_export_does_not_run_keeps_it(code: Path, kept: Kept) -> None:
    for name in (
        "protocols/openai.py",
        "explainers/_page.py",
        "engine.py",
        "transformers_handler.py",
    ):
        with (code / name).open("a", encoding="utf-8") as file:
            file.write("# Changed.\n")
    assert kept()
    for name in ("tasks/fill_mask.py", "export/new.py", "errors.py"):
        with (code / name).open("a", encoding="utf-8") as file:
            file.write("# Changed.\n")
        assert not kept()


def test_everything_that_an_export_imports_is_code_that_it_depends_on() -> None:
    """The packages that it does not depend on write logs and metrics."""
    starts = [path for path in FILES if package_of(path) in ("export", "formats", "tasks")]
    reached, waiting = set[Path](), starts
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        modules = [module.partition(".")[2].split(".") for module in imports(path)]
        places = [HANDLERS.joinpath(*parts[:count]) for parts in modules for count in (-1, None)]
        waiting += [
            file
            for place in places
            for file in (place.with_suffix(".py"), place / "__init__.py")
            if file in FILES
        ]
    packages = {package_of(path) for path in reached} - {"__init__", "telemetry"}
    assert packages == {Path(name).stem for name in EXPORTING}


def test_models_of_one_name_in_two_folders_are_exported_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports: list[Path] = []

    def export(checkpoint: Path, config: ModelConfig, target: Path, samples: Any) -> None:
        exports.append(checkpoint)
        (target / "model.pt").write_text(str(checkpoint))

    monkeypatch.setattr("hf_serve.handlers.formats.export", export)
    config = ModelConfig.parse({"handler": {"mode": MODE, "save_mode": "torchscript"}})
    for name in ("first", "second", "first", "second"):
        (tmp_path / name).mkdir(exist_ok=True)
        files = exported(tmp_path / name / "m.yaml", config, tmp_path / name, tmp_path / "build")
        assert files["model.pt"].read_text() == str(tmp_path / name)
    assert len(exports) == 2


def test_other_rows_and_other_weights_are_exported(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"inputs": "Ada sleeps"}', encoding="utf-8")
    assert not kept()
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    assert not kept()
    assert kept()


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
    monkeypatch.setattr("hf_serve.handlers.checkpoints.placement.find_accelerator", lambda: None)
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
        Sample("good film", {"top_k": 2}, is_batch_item=True),
        Sample(["good", "film"], {"top_k": 2}, is_batch_item=True),
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
