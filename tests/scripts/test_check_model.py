"""`check_model.py`: how a model is served, before its weights are downloaded."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from hf_serve.handlers import __version__
from hf_serve.handlers.checkpoints import dtypes
from hf_serve.handlers.checkpoints.gliner2 import LONGEST
from hf_serve.handlers.config.handler_section import save_modes
from hf_serve.scripts import check_model, paths
from hf_serve.scripts.archives.archive_formats import FormatName
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.hub.client import Hub
from tests import tiny_gliner
from tests.sentences import Sentence
from tests.standins.archives import ECHO, write_archive
from tests.standins.checkpoints import write_checkpoint, write_config
from tests.standins.hub import LocalHub

Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(hub: LocalHub, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Check:
    """Run the command with the local hub; return its exit code, output and errors."""
    monkeypatch.setattr(check_model, "Hub", lambda: Hub(hub.url))
    monkeypatch.setenv("COLUMNS", "200")

    def run(model: object, **options: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        code = 0
        try:
            check_model.main(str(model), **options)
        except (typer.Exit, SystemExit) as ended:
            code = getattr(ended, "exit_code", 1)
        return code, *capsys.readouterr()

    return run


def test_a_model_is_checked_before_its_weights_are_downloaded(check: Check, hub: LocalHub) -> None:
    code, out, err = check("org/name")
    assert (code, err) == (0, "")
    for fact in ("sequence_classification", "DistilBertForSequenceClassification", "512 tokens"):
        assert fact in out
    assert not [name for name in hub.sent if name.endswith((".safetensors", ".bin"))]


def test_a_check_is_printed_as_json(check: Check, hub: LocalHub) -> None:
    document = json.loads(check("org/name", as_json=True)[1])
    assert document["commit"] == hub.repositories["org/name"].resolve("main")
    assert document["mode"]["mode"] == "sequence_classification"
    assert set(document["formats"]) == set(save_modes()) - {"auto"}
    assert document["formats"]["pretrained"] is None
    assert document["memory"]["float32"] == document["weights"]
    assert document["refusal"] is None


def test_a_folder_with_shards_is_checked_as_it_is(check: Check, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", shards=True)
    document = json.loads(check(folder, as_json=True)[1])
    shards = list(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert document["weights"] == sum(shard.stat().st_size for shard in shards)


def test_weights_of_a_copy_that_ended_early_are_refused(check: Check, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", shards=True)
    shard = max(folder.glob("model-*.safetensors"))
    os.truncate(shard, shard.stat().st_size - 1)
    code, out, err = check(folder)
    assert (code, err.strip()) == (1, Sentence(shard.name))
    assert "served" in out


def test_the_labels_of_a_classifier_and_how_they_are_scored_are_printed(
    check: Check, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    labels = {str(number): f"label-{number}" for number in range(10)}
    path.write_text(json.dumps(config | {"id2label": labels, "num_labels": 10}), encoding="utf-8")
    printed = " ".join(check(folder)[1].split())
    assert "label-7 and 2 more" in printed and "label-8" not in printed
    assert "by itself" not in printed
    kind = {"problem_type": "multi_label_classification"}
    path.write_text(json.dumps(config | {"id2label": labels} | kind), encoding="utf-8")
    assert "2 more; each is scored by itself" in " ".join(check(folder)[1].split())


def test_a_folder_is_not_downloaded(check: Check, tmp_path: Path) -> None:
    def rows(model: object) -> set[str]:
        return {line.split()[0] for line in check(model)[1].splitlines()}

    folder = write_checkpoint(tmp_path / "model")
    assert rows(folder) - rows("org/name") == {"files"}
    assert rows("org/name") - rows(folder) == {"download"}


def test_formats_without_their_packages_are_in_one_line(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("onnxruntime", "onnxscript"):
        monkeypatch.setitem(sys.modules, package, None)
    (line,) = [line for line in check("org/name")[1].splitlines() if "onnx" in line]
    assert line.strip().startswith("not installed")
    document = json.loads(check("org/name", as_json=True)[1])
    assert "onnx" in document["not_installed"]
    assert document["formats"]["onnx"].count("pip install") == 1


def test_a_yaml_is_checked_with_its_mode(check: Check, tmp_path: Path) -> None:
    path = write_config(tmp_path / "a.yaml", mode="zero_shot_classification")
    code, out, err = check(path)
    assert "zero_shot_classification" in out
    assert (code, err.strip()) == (1, Sentence("entail"))


def test_a_yaml_is_checked_with_the_keys_that_say_how_its_model_is_read(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "artifacts" / "models" / "a")
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8")) | {"architectures": ["DistilBertModel"]}
    path.write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setattr(paths, "MODELS", folder.parent)
    yaml = tmp_path / "a.yaml"
    mode = "handler:\n  mode: sequence_classification\n"
    yaml.write_text(mode, encoding="utf-8")
    assert check(yaml)[0] == 1
    yaml.write_text(f"{mode}  allow_random_head: true\n", encoding="utf-8")
    code, out, err = check(yaml, as_json=True)
    assert (code, err, json.loads(out)["model"]) == (0, "", str(folder))


def test_code_that_the_yaml_names_is_not_left_out(check: Check, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    (folder / "handler.py").touch()
    text = f"handler:\n  mode: sequence_classification\n  model_name: {folder}\n"
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    assert "handler.py" in json.loads(check(path, as_json=True)[1])["left_out"]
    path.write_text(f"{text}  custom: handler.py\n", encoding="utf-8")
    assert json.loads(check(path, as_json=True)[1])["left_out"] is None


def test_a_yaml_without_a_model_is_refused(check: Check, tmp_path: Path) -> None:
    path = tmp_path / "no-such-model.yaml"
    path.write_text("handler:\n  mode: fill_mask\n", encoding="utf-8")
    code, _, err = check(path)
    assert (code, err.strip()) == (1, Sentence("model_name", "no-such-model"))


def test_a_yaml_whose_code_loads_the_model_is_not_checked(check: Check, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("handler: {mode: custom, custom: own.py}", encoding="utf-8")
    code, out, _ = check(path)
    assert (code, out.strip()) == (0, Sentence("own.py"))
    assert json.loads(check(path, as_json=True)[1])["mode"]["mode"] == "custom"
    assert check(tmp_path / "none.yaml")[2].strip() == Sentence("none.yaml")


def test_a_model_of_another_head_is_not_served(check: Check) -> None:
    code, out, err = check("org/name", mode="question_answering")
    assert "no" in out.splitlines()[-1]
    assert (code, err.strip()) == (1, Sentence("DistilBertForQuestionAnswering"))


@pytest.mark.parametrize(
    ("files", "fact"),
    [
        ({"adapter_config.json": "{}"}, "LoRA"),
        ({"config.json": "{", "model.safetensors": ""}, "config.json"),
        ({"model.gguf": ""}, "llama.cpp"),
    ],
)
def test_what_is_no_checkpoint_is_said_in_a_sentence(
    check: Check, hub: LocalHub, tmp_path: Path, files: dict[str, str], fact: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    hub.push("org/other", tmp_path)
    code, out, err = check("org/other")
    assert (code, out, err.strip()) == (1, "", Sentence(fact))


def test_pickles_are_refused_unless_they_are_allowed(
    check: Check, hub: LocalHub, tmp_path: Path
) -> None:
    hub.push("org/old", write_checkpoint(tmp_path / "old", pickle=True))
    code, _, err = check("org/old")
    assert (code, err.strip()) == (1, Sentence("pytorch_model.bin"))
    assert check("org/old", allow_pickle=True)[0] == 0


def test_a_model_of_own_code_is_refused(
    check: Check, hub: LocalHub, checkpoint: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(checkpoint, tmp_path / "own"))
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForSequenceClassification": "own.Classifier"}
    (folder / "config.json").write_text(json.dumps(config))
    hub.push("org/own", folder)
    code, _, err = check("org/own")
    assert (code, err.strip()) == (1, Sentence("auto_map"))


def test_a_mode_that_is_not_certain_is_asked_for(
    check: Check, hub: LocalHub, tmp_path: Path
) -> None:
    hub.push("org/base", write_checkpoint(tmp_path / "base", head=""))
    code, out, err = check("org/base")
    assert (code, out, err.strip()) == (1, "", Sentence("org/base", "feature_extraction"))
    assert check("org/base", mode="feature_extraction")[0] == 0


def test_an_unknown_mode_is_refused(check: Check) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        check("org/name", mode="fill_maks")
    assert str(caught.value) == Sentence("fill_maks", "fill_mask")


def test_a_model_that_the_hub_does_not_have_is_said(check: Check, hub: LocalHub) -> None:
    code, out, err = check("org/gone")
    assert (code, out, err.strip()) == (1, "", Sentence("org/gone", hub.url))


def test_a_gliner_is_found_by_its_config(check: Check, tmp_path: Path) -> None:
    folder = tiny_gliner.write(tmp_path / "model", tiny_gliner.Kind("Bert", {"hidden_size": 32}))
    document = json.loads(check(folder, as_json=True)[1])
    assert document["mode"]["mode"] == "zero_shot_token_classification"
    assert document["architecture"] == "GLiNER"
    assert document["refusal"] is None


def test_the_limit_of_a_row_is_the_limit_of_the_checkpoint(check: Check, tmp_path: Path) -> None:
    """The encoder of a GLiNER2 reads texts of any length, whatever its config says."""
    encoder = tiny_gliner.Kind("DebertaV2", encoder_config=tiny_gliner.DEBERTA)
    folder = tiny_gliner.write_gliner2(tmp_path / "model", encoder)
    config = json.loads((folder / "encoder_config" / "config.json").read_text())
    assert config["max_position_embeddings"] < LONGEST
    assert json.loads(check(folder, as_json=True)[1])["max_positions"] == LONGEST


def test_a_gliner_that_is_not_served_is_refused_with_its_reason(
    check: Check, tmp_path: Path
) -> None:
    kind = tiny_gliner.Kind("Bert", {"hidden_size": 32, "relations_layer": "dot"})
    folder = tiny_gliner.write(tmp_path / "model", kind)
    document = json.loads(check(folder, as_json=True)[1])
    assert "relations_layer" in document["refusal"]


def test_a_classifier_of_setfit_is_served_for_its_vectors_alone(
    check: Check, hub: LocalHub, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "setfit", head="")
    (folder / "model_head.pkl").write_bytes(b"a pickle")
    hub.push("org/setfit", folder)
    code, _, err = check("org/setfit")
    assert (code, err.strip()) == (1, Sentence("SetFit", "model_head.pkl"))
    document = json.loads(check("org/setfit", mode="sentence_embedding", as_json=True)[1])
    assert document["left_out"] == Sentence("model_head.pkl", "SetFit")
    assert not {"model_head.pkl", "model.safetensors"} & {*hub.sent}


def test_an_adapter_beside_a_model_of_the_hub_is_refused(
    check: Check, hub: LocalHub, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "both")
    (folder / "adapter_config.json").write_text("{}")
    hub.push("org/both", folder)
    code, _, err = check("org/both")
    assert (code, err.strip()) == (1, Sentence("adapter_config.json", "handler.adapters"))


@pytest.mark.parametrize("archive_format", get_args(FormatName))
def test_an_archive_is_read_without_a_hub(
    check: Check, hub: LocalHub, tmp_path: Path, archive_format: FormatName
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    path = folder / "config.json"
    kind = {"problem_type": "multi_label_classification", "id2label": {"0": "rude", "1": "kind"}}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | kind), encoding="utf-8")
    packed = pack(
        write_config(tmp_path / "a.yaml", model_name=str(folder)),
        archive_format=archive_format,
        export_path=tmp_path / "store",
        version="2.1",
        checked=False,
    ).path
    code, out, err = check(packed)
    assert (code, err) == (0, "")
    printed = " ".join(out.split())
    for fact in ("version 2.1", f"version {__version__}", "DistilBert", "rude, kind; each"):
        assert fact in printed
    document = json.loads(check(packed, as_json=True)[1])
    assert document["config"]["handler"]["mode"] == "sequence_classification"
    assert (document["name"], document["has_sums"], document["is_signed"]) == ("a", True, False)
    assert not hub.sent


def test_an_archive_that_is_changed_or_missing_is_refused(
    check: Check, hub: LocalHub, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    config = write_config(tmp_path / "a.yaml", model_name=str(folder))
    packed = pack(config, export_path=tmp_path, checked=False).path
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("sitecustomize.py", "")
    code, out, err = check(packed)
    assert (code, out, err.strip()) == (1, "", Sentence("a.mar", "sitecustomize.py"))
    code, out, err = check(tmp_path / "none.mar")
    assert (code, out, err.strip()) == (1, "", Sentence(tmp_path / "none.mar"))
    write_archive(tmp_path, "other", ECHO)
    code, out, err = check(tmp_path / "other.mar")
    assert (code, out, err.strip()) == (1, "", Sentence("other.mar", "handler"))
    assert not hub.sent


def test_a_file_of_weights_is_no_model(check: Check, hub: LocalHub, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model") / "model.safetensors"
    code, out, err = check(path)
    assert (code, out, err.strip()) == (1, "", Sentence(path, "file", "folder"))
    assert not hub.sent


def test_quantized_weights_without_their_package_are_refused(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    path = folder / "config.json"
    quantized = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | quantized), encoding="utf-8")
    monkeypatch.setattr(dtypes, "find_spec", lambda _: None)
    code, _, err = check(folder)
    assert (code, err.strip()) == (1, Sentence("awq", "pip install gptqmodel"))
    monkeypatch.setattr(dtypes, "find_spec", lambda _: object())
    assert check(folder)[0] == 0


def _archive_with(path: Path, files: dict[str, str], **model: str) -> Path:
    """Write an archive as torch-model-archiver does, from the files that it was given."""
    named = {"modelName": "old", "modelVersion": "1.0", **model}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": named}))
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_an_archive_of_another_tool_says_what_it_lacks(check: Check, tmp_path: Path) -> None:
    ours = {"transformers_handler.py": "from handlers.worker_start import prepare_process\n"}
    yaml = {"old.yaml": "handler: {mode: fill_mask, model_name: org/name}\n"}
    kit = {"handlers/__init__.py": f'__version__ = "{__version__}"\n'}
    named = {"handler": "transformers_handler.py", "configFile": "old.yaml"}
    code, out, err = check(_archive_with(tmp_path / "a.mar", ours | yaml, **named))
    assert (code, out, err.strip()) == (1, "", Sentence("a.mar", "artifacts/package"))
    code, out, err = check(_archive_with(tmp_path / "b.mar", ours | kit, handler=named["handler"]))
    assert (code, out, err.strip()) == (1, "", Sentence("b.mar", "--config-file"))
    code, out, err = check(_archive_with(tmp_path / "c.mar", ours | kit | yaml, **named))
    assert (code, err) == (0, "") and "fill_mask" in out and "not known" in out
    other = {**named, "handler": "image_classifier"}
    code, out, err = check(_archive_with(tmp_path / "d.mar", yaml, **other))
    assert (code, err) == (0, "") and "by TorchServe alone, with its own image_class" in out


def test_a_yaml_whose_format_is_not_packed_is_refused(check: Check, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    path = tmp_path / "a.yaml"
    handler = {"mode": "sequence_classification", "model_name": str(folder)}
    path.write_text(json.dumps({"handler": handler | {"save_mode": "neuronx"}}), encoding="utf-8")
    code, _out, err = check(path)
    assert (code, err.strip()) == (1, Sentence("neuronx"))
    path.write_text(json.dumps({"handler": handler}), encoding="utf-8")
    assert check(path)[0] == 0


def test_a_refusal_without_a_yaml_names_options_of_the_command(
    check: Check, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    code, _, err = check(folder, mode="question_answering")
    assert (code, err.strip()) == (
        1,
        Sentence("allow_random_head", "YAML, which is named in place"),
    )
    code, _, err = check("org/name", revision="none")
    assert code == 1 and "--revision" in err and "handler." not in err
