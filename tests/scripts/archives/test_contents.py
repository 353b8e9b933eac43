from __future__ import annotations

import json
from pathlib import Path

import pytest

from hf_serve.handlers.config.model_config import CONFIG_FILE
from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.formats import Choice
from hf_serve.scripts.archives.contents import WrongPlace, contents, sources_of
from hf_serve.scripts.archives.manifest import HANDLER_FILE
from tests import tiny
from tests.sentences import refused
from tests.standins.archives import write_weightless, write_yaml

CHECKPOINT = {"config.json", "index_to_name.json", "tokenizer.json", "tokenizer_config.json"}
PACKAGE = {"handlers/__init__.py", "handlers/tasks/question_answering.py"}
HANDLER = {"transformers_handler.py", "handlers/transformers_handler.py", "model-config.yaml"}


def test_an_archive_contains_only_the_required_files(config_path: Path, handlers: Path) -> None:
    there = set(contents(config_path, handlers=handlers))

    assert there == CHECKPOINT | PACKAGE | HANDLER | {"model.safetensors", "MAR-INF/MANIFEST.json"}


def test_a_checkpoint_in_fewer_bits_is_packed_with_its_weights_and_its_agreement(
    tmp_path: Path, handlers: Path
) -> None:
    mode = "sequence_classification"
    (tmp_path / "rows.jsonl").write_text('{"inputs": "Ada sings"}', encoding="utf-8")
    keys = {"mode": mode, "dtype": "auto", "calibration": "rows.jsonl"}
    path = write_yaml(tmp_path / "fewer.yaml", tiny.write(tmp_path / "model", mode), **keys)

    parts = contents(path, handlers=handlers, build=tmp_path / "build")

    assert {"model.safetensors", "quality.json"} < set(parts)
    report = FidelityReport.read(Path(str(parts["quality.json"])))
    assert (report.rows, report.dtype) == (1, "bfloat16")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("explains", [True, False])
def test_an_exported_model_is_packed_with_its_weights_if_they_explain_it(
    tmp_path: Path, handlers: Path, explains: bool
) -> None:
    keys = {"mode": "fill_mask", "save_mode": "torchscript", "explain_with_checkpoint": True}
    keys |= {"captum_explanation": explains}
    checkpoint = tiny.write(tmp_path / "model", "fill_mask")
    path = write_yaml(tmp_path / "exported.yaml", checkpoint, **keys)

    parts = contents(path, handlers=handlers, build=tmp_path / "build")
    assert ("model.safetensors" in parts) == explains


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_the_fastest_format_is_packed_with_its_name_and_the_weights_for_explanations(
    tmp_path: Path, handlers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_serve.handlers.checkpoints.placement.find_accelerator", lambda: None)
    (tmp_path / "rows.jsonl").write_text('{"inputs": "Once upon a time"}', encoding="utf-8")
    checkpoint = tiny.write(tmp_path / "model", "text_generation")
    document = json.loads(write_yaml(tmp_path / "auto.yaml", checkpoint).read_text("utf-8"))
    own = {"mode": "text_generation", "save_mode": "auto", "calibration": "rows.jsonl"}
    document |= {"continuousBatching": True, "handler": {**document["handler"], **own}}
    path = tmp_path / "auto.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")

    parts = contents(path, handlers=handlers, build=tmp_path / "build")

    assert {"openvino_model.bin", "model.safetensors", "quality.json"} < set(parts)
    assert Choice.read(Path(str(parts["save_mode.json"]))).save_mode == "openvino"
    document["handler"] |= {"captum_explanation": False}
    path.write_text(json.dumps(document), encoding="utf-8")
    assert "model.safetensors" not in contents(path, handlers=handlers)


def test_a_draft_model_is_packed_into_a_folder(
    tmp_path: Path, weightless: Path, handlers: Path
) -> None:
    draft = write_weightless(tmp_path / "draft")
    keys = {"mode": "text_generation", "assistant_model": str(draft)}
    parts = contents(write_yaml(tmp_path / "assisted.yaml", weightless, **keys), handlers=handlers)

    inside = {place: path for place, path in parts.items() if place.startswith("assistant_model/")}

    assert inside == {
        f"assistant_model/{name}": draft / name for name in (*CHECKPOINT, "model.safetensors")
    }


def test_the_manifest_names_the_handler_and_the_yaml(config_path: Path, handlers: Path) -> None:
    parts = contents(config_path, "2.1", handlers=handlers)

    document = json.loads(bytes(parts["MAR-INF/MANIFEST.json"]))

    assert document == {
        "createdOn": "01/01/1980 00:00:00",
        "runtime": "python",
        "model": {
            "modelName": "qa",
            "handler": "transformers_handler.py",
            "modelVersion": "2.1",
            "configFile": "model-config.yaml",
        },
        "archiverVersion": "0.12.0",
    }


def test_every_shard_of_the_weights_is_packed(
    config_path: Path, weightless: Path, handlers: Path
) -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    (weightless / "model.safetensors").unlink()
    for shard in shards:
        (weightless / shard).touch()
    index = {"weight_map": dict(zip("ab", shards, strict=True))}
    (weightless / "model.safetensors.index.json").write_text(json.dumps(index))

    there = contents(config_path, handlers=handlers)

    assert {*shards, "model.safetensors.index.json"} < set(there)


def test_pickled_weights_are_packed_only_if_allowed(
    tmp_path: Path, weightless: Path, handlers: Path
) -> None:
    (weightless / "model.safetensors").unlink()
    strict = write_yaml(tmp_path / "strict.yaml", weightless)
    trusting = write_yaml(tmp_path / "trusting.yaml", weightless, allow_pickle=True)

    with refused(WrongCheckpoint, "handler.allow_pickle: true"):
        contents(strict, handlers=handlers)
    assert "pytorch_model.bin" in contents(trusting, handlers=handlers)


def test_extra_files_go_to_the_root_and_replace_checkpoint_files(
    tmp_path: Path, config_path: Path, handlers: Path
) -> None:
    labels, folder = tmp_path / "index_to_name.json", tmp_path / "more"
    labels.write_text('{"0": "no"}')
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "notes.txt").touch()
    (folder / "linked").symlink_to(folder / "deep")
    (folder / "deep" / "up").symlink_to(folder)

    parts = contents(config_path, extra_files=[labels, folder], handlers=handlers)

    assert parts["index_to_name.json"] == labels
    assert parts["deep/notes.txt"] == folder / "deep" / "notes.txt"
    assert parts["linked/notes.txt"] == folder / "linked" / "notes.txt"
    assert not [name for name in parts if "up/" in name]


def test_a_missing_extra_file_is_an_error(config_path: Path, handlers: Path) -> None:
    with refused(WrongConfig, "nowhere.txt"):
        contents(config_path, extra_files=[Path("nowhere.txt")], handlers=handlers)


@pytest.mark.parametrize(
    "name",
    [CONFIG_FILE, HANDLER_FILE, "handlers/engine.py", "quality.json", "trials.json"],
)
def test_an_extra_file_is_no_file_of_the_kit(
    tmp_path: Path, config_path: Path, handlers: Path, name: str
) -> None:
    file = tmp_path / "more" / name
    file.parent.mkdir(parents=True)
    file.touch()
    with refused(WrongConfig, "--extra-files", str(file)):
        contents(config_path, extra_files=[tmp_path / "more"], handlers=handlers)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("handlers", "a folder"),
        ("Model-Config.yaml", "twice"),
        ("CONFIG.json", "twice"),
        ("config.json/notes.txt", "a folder"),
        ("a\\b", "elsewhere"),
        ("a\nb", "elsewhere"),
        ("\udcff.txt", "elsewhere"),
    ],
)
def test_no_archive_has_a_name_that_no_program_of_the_kit_unpacks(
    tmp_path: Path, config_path: Path, handlers: Path, name: str, said: str
) -> None:
    """Without the check of its load, such an archive would be in the store."""
    file = tmp_path / "more" / name
    file.parent.mkdir(parents=True)
    file.touch()
    with refused(WrongPlace, said):
        contents(config_path, extra_files=[tmp_path / "more"], handlers=handlers)


@pytest.mark.parametrize("version", ["", " ", "a/b", "1.0\n", "-1", "ü"])
def test_a_version_that_no_url_can_have_is_refused(
    config_path: Path, handlers: Path, version: str
) -> None:
    with refused(WrongConfig, "--version"):
        contents(config_path, version, handlers=handlers)


def test_two_extra_files_of_one_name_are_refused(
    tmp_path: Path, config_path: Path, handlers: Path
) -> None:
    files = [tmp_path / folder / "index_to_name.json" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.touch()
    with refused(WrongConfig, "--extra-files", *map(str, files)):
        contents(config_path, extra_files=files, handlers=handlers)


def test_the_error_for_a_missing_checkpoint_names_both_commands(
    tmp_path: Path, handlers: Path
) -> None:
    config_path = write_yaml(tmp_path / "nothing.yaml", Path("no/such"))

    with pytest.raises(WrongCheckpoint) as raised:
        contents(config_path, handlers=handlers)

    assert f"python scripts/download_models.py {config_path}" in str(raised.value)
    assert "python scripts/make_demo_models.py" in str(raised.value)


def test_an_invalid_model_name_is_rejected(
    tmp_path: Path, weightless: Path, handlers: Path
) -> None:
    config_path = write_yaml(tmp_path / "my model.yaml", weightless)

    with refused(WrongConfig):
        contents(config_path, handlers=handlers)


def test_own_code_is_packed_and_read_from_the_archive(tmp_path: Path, handlers: Path) -> None:
    checkpoint = tiny.write(tmp_path / "model", "fill_mask")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text("def postprocess(result): return 1")
    keys = {"mode": "fill_mask", "custom": "code/mine.py"}
    path = write_yaml(tmp_path / "own.yaml", checkpoint, **keys)
    parts = contents(path, handlers=handlers)
    assert parts["custom/mine.py"] == tmp_path / "code" / "mine.py"
    assert tmp_path / "code" / "mine.py" in sources_of(path)

    (tmp_path / "code" / "mine.py").unlink()
    with refused(WrongConfig, "handler.custom", "code/mine.py"):
        contents(path, handlers=handlers)


def test_all_files_of_a_model_with_its_own_code_are_packed(tmp_path: Path, handlers: Path) -> None:
    model = tmp_path / "model"
    (model / "code").mkdir(parents=True)
    (model / "code" / "inference.py").write_text("def model_fn(model_dir): ...", encoding="utf-8")
    (model / "words.txt").write_text("fine", encoding="utf-8")
    (model / ".cache").write_text("", encoding="utf-8")
    path = write_yaml(tmp_path / "own.yaml", model, mode="custom", custom="code/inference.py")

    there = set(contents(path, handlers=handlers))

    own = {"code/inference.py", "words.txt"}
    assert there == own | PACKAGE | HANDLER | {"MAR-INF/MANIFEST.json"}


def test_own_code_in_a_checkpoint_is_found_there(tmp_path: Path, handlers: Path) -> None:
    checkpoint = tiny.write(tmp_path / "model", "fill_mask")
    code = checkpoint / "inference.py"
    code.write_text("def output_fn(prediction, accept): ...", encoding="utf-8")
    path = write_yaml(tmp_path / "own.yaml", checkpoint, mode="fill_mask", custom="inference.py")

    parts = contents(path, handlers=handlers)

    assert parts["custom/inference.py"] == code
    assert "batchSize: 1" in bytes(parts["model-config.yaml"]).decode()


@pytest.mark.parametrize("name", ["handlers/own.py", "quality.json", "calibration.json"])
def test_a_file_in_the_place_of_the_kit_is_refused(
    tmp_path: Path, handlers: Path, name: str
) -> None:
    place = tmp_path / "model" / name
    place.parent.mkdir(parents=True)
    place.write_text("", encoding="utf-8")
    (tmp_path / "model" / "handler.py").write_text("class EndpointHandler: ...", encoding="utf-8")
    keys = {"mode": "custom", "custom": "handler.py"}
    path = write_yaml(tmp_path / "own.yaml", tmp_path / "model", **keys)
    with refused(WrongCheckpoint, name):
        contents(path, handlers=handlers)
