"""What `save_mode: auto` is: where a model is packed, and where it is loaded."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import formats, tasks
from hf_serve.handlers.checkpoints import placement
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import Unprocessable, WrongCheckpoint, WrongConfig
from hf_serve.handlers.formats import CHOICE_FILE, Choice
from hf_serve.handlers.formats.openvino import Format
from hf_serve.handlers.types.request import Request
from tests.sentences import Sentence, refused
from tests.serving import Served, differences

MODE = "text_generation"
WEIGHTS = "model.safetensors"


def config(document: dict[str, Any] | None = None, **handler: Any) -> ModelConfig:
    keys = {"mode": MODE, "save_mode": "auto", **handler}
    return ModelConfig.parse({**(document or {}), "handler": keys})


CONTINUOUS = config({"continuousBatching": True})


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Replace the accelerators of this machine, which by default has none, and OpenVINO."""
    monkeypatch.setattr("hf_serve.handlers.formats.base.is_installed", lambda _: True)
    monkeypatch.setattr(formats, "_is_installed", lambda _: False)

    def replace(accelerator: str | None) -> None:
        monkeypatch.setattr(placement, "find_accelerator", lambda: accelerator)

    replace(None)
    return replace


@pytest.mark.parametrize(
    ("accelerator", "keys", "save_mode", "device"),
    [
        (None, {}, "openvino", "cpu"),
        ("cuda", {}, "pretrained", "cuda"),
        ("cuda", {"deviceType": "cpu"}, "openvino", "cpu"),
        (None, {"deviceType": "gpu"}, "pretrained", "cuda"),
    ],
)
def test_generation_has_the_fastest_format_of_the_device_that_serves(
    machine: Callable[[str | None], None],
    accelerator: str | None,
    keys: dict[str, Any],
    save_mode: str,
    device: str,
) -> None:
    machine(accelerator)
    choice = formats.choose(config(keys))
    assert (choice.save_mode, choice.device) == (save_mode, device)
    assert str(choice).startswith(f"save_mode: auto is {save_mode}, because it is the fastest for")


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have vLLM installed."""
    monkeypatch.setattr(formats, "_is_installed", lambda _: True)


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize(
    ("accelerator", "document", "handler", "engine"),
    [
        ("cuda", {"continuousBatching": True}, {}, "vllm"),
        ("cuda", {"continuousBatching": True}, {"engine": None}, None),
        ("cuda", {"continuousBatching": True}, {"adapters": {"a": "b/c"}}, None),
        ("cuda", {}, {}, None),
        ("cuda", {}, {"mode": "fill_mask"}, None),
        ("xpu", {"continuousBatching": True}, {}, None),
        (None, {"continuousBatching": True}, {}, None),
    ],
)
def test_vllm_generates_on_an_nvidia_gpu_where_it_is_installed_and_may(
    machine: Callable[[str | None], None],
    accelerator: str | None,
    document: dict[str, Any],
    handler: dict[str, Any],
    engine: str | None,
) -> None:
    machine(accelerator)
    given = config(document, **handler)
    choice = formats.choose(given)
    assert choice.engine == engine
    assert formats.plan(given).handler.engine == engine
    assert ("engine: vllm" in str(choice)) == (engine is not None)


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize(
    ("device", "installed", "engine"),
    [("cuda", True, "vllm"), ("cuda", False, None), ("cpu", True, None)],
)
def test_an_archive_has_the_engine_where_the_worker_has_it(
    machine: Callable[[str | None], None],
    device: str,
    installed: bool,
    engine: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine("cuda")
    formats.choose(CONTINUOUS).write(tmp_path)
    monkeypatch.setattr(formats, "_is_installed", lambda _: installed)
    assert formats.resolve(CONTINUOUS, tmp_path, device).handler.engine == engine
    assert ("engine: vllm is not used" in caplog.text) == (engine is None)


@pytest.mark.parametrize(
    "mode", [mode for mode in modes() if not tasks.get(mode).description.exports.fastest_formats]
)
@pytest.mark.parametrize("accelerator", [None, "cuda"])
def test_other_modes_have_the_checkpoint(
    machine: Callable[[str | None], None], mode: str, accelerator: str | None
) -> None:
    machine(accelerator)
    assert formats.choose(config(mode=mode)).save_mode == "pretrained"


@pytest.mark.parametrize(
    ("document", "handler", "facts"),
    [
        ({}, {"device_map": "auto"}, ["device_map", "save_mode: openvino"]),
        ({"pt2": "inductor"}, {}, ["pt2.compile"]),
        ({}, {"batch_size": 4}, ["handler.batch_size", "4"]),
        ({"parallelType": "tp", "torchrun": {"nproc-per-node": 2}}, {}, ["torchrun"]),
    ],
)
def test_a_key_that_excludes_the_fastest_format_leaves_the_checkpoint_and_is_named(
    document: dict[str, Any], handler: dict[str, Any], facts: list[str]
) -> None:
    choice = formats.choose(config(document, **handler))
    assert choice.save_mode == "pretrained"
    assert choice.reason == Sentence(*facts)


def test_missing_packages_leave_the_checkpoint_and_are_all_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(placement, "find_accelerator", lambda: None)
    for package in ("openvino", "nncf"):
        monkeypatch.setitem(sys.modules, package, None)
    choice = formats.choose(config())
    assert choice.save_mode == "pretrained"
    assert choice.reason == Sentence(
        "openvino and nncf", "pip install openvino", "pip install nncf"
    )


@pytest.mark.parametrize(
    ("mode", "is_needed"), [("sequence_classification", False), ("text_generation", True)]
)
def test_only_modes_that_generate_texts_need_the_packages_of_generation(
    monkeypatch: pytest.MonkeyPatch, mode: str, is_needed: bool
) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "optimum.intel.openvino", None)
    problem = formats.find_problem(config(mode=mode), "openvino")
    assert ("optimum.intel.openvino is not installed" in str(problem)) is is_needed


def test_keys_are_checked_against_the_format_that_is_chosen(
    machine: Callable[[str | None], None],
) -> None:
    formats.check_config(config(quantization="int8_weights"))
    machine("cuda")
    with refused(WrongConfig, "save_mode", "pretrained"):
        formats.check_config(config(quantization="int8_weights"))


def test_a_format_of_the_yaml_is_not_changed(tmp_path: Path) -> None:
    Choice("openvino", "cpu", "it is fast").write(tmp_path)
    own = config(save_mode="pretrained")
    assert formats.plan(own) == formats.resolve(own, tmp_path, "cpu") == own


def test_a_copy_with_another_format_keeps_the_keys_that_were_set() -> None:
    given = config({"batchSize": 4}, dtype="auto", min_agreement=0.5)
    copy = given.with_save_mode("openvino")
    assert copy.handler.model_fields_set == given.handler.model_fields_set
    assert (copy.batchSize, copy.handler.dtype, copy.source) == (4, "auto", given.source)


def test_an_export_that_fails_leaves_the_checkpoint_and_no_files(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any, spec: Any, target: Path, inputs: Any) -> None:
        (target / "openvino_model.xml").touch()
        raise WrongCheckpoint("openvino_model.xml", "cannot be exported (no rule)", "use another")

    monkeypatch.setattr(Format, "export", fail)
    assert formats.export(checkpoint(MODE), config(), tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == [CHOICE_FILE]
    choice = Choice.read(tmp_path / CHOICE_FILE)
    assert choice.save_mode == "pretrained"
    assert "openvino_model.xml: cannot be exported (no rule)" in choice.reason


def test_weights_that_no_export_keeps_leave_the_checkpoint(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "quantized"
    folder.mkdir()
    for path in checkpoint(MODE).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    document["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    formats.export(folder, config(), tmp_path)
    choice = Choice.read(tmp_path / CHOICE_FILE)
    assert choice.save_mode == "pretrained"
    assert "bitsandbytes" in choice.reason


def test_a_checkpoint_that_nothing_was_exported_of_is_served_as_it_is(
    checkpoint: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """As torch-model-archiver packs it with the same YAML."""
    caplog.set_level(logging.INFO)
    model = Served(checkpoint(MODE), MODE, save_mode="auto")
    assert model.engine.describe().save_mode == "pretrained"
    assert "save_mode: auto is pretrained, because the archive has the checkpoint" in caplog.text


@pytest.mark.parametrize(
    ("chosen", "chosen_for", "device", "warns"),
    [
        ("openvino", "cpu", "cuda", True),
        ("openvino", "cpu", "cpu", False),
        ("pretrained", "cuda", "cpu", True),
        ("pretrained", "cpu", "cuda", False),
    ],
)
def test_a_worker_keeps_the_format_and_warns_where_another_one_is_faster(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    chosen: str,
    chosen_for: str,
    device: str,
    warns: bool,
) -> None:
    Choice(chosen, chosen_for, "it is fast").write(tmp_path)
    assert formats.resolve(config(), tmp_path, device).handler.save_mode == chosen
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == warns
    assert all(f"which was chosen for {chosen_for}, and this" in each for each in warnings)


@pytest.fixture(scope="module")
def exported(checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of an archive with continuous batching: an export and the weights."""
    folder = tmp_path_factory.mktemp("auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "find_accelerator", lambda: None)
        formats.export(checkpoint(MODE), CONTINUOUS, folder)
    for path in checkpoint(MODE).iterdir():
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.nightly  # tests/e2e/test_shipped_generation.py asks such a model
@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_an_exported_model_generates_and_is_explained_as_the_checkpoint(
    exported: Path, served: Callable[..., Served]
) -> None:
    engine, reference = Engine.load(exported, CONTINUOUS), served(MODE).engine
    assert engine.describe().save_mode == "openvino"
    assert engine.describe().explanation == reference.describe().explanation
    request = Request("Once upon a time", {"max_new_tokens": 3})
    assert engine.predict([request]) == reference.predict([request])
    for method in ("feature_ablation", "layer_integrated_gradients"):
        own = replace(request, parameters={**request.parameters, "method": method})
        assert not differences(engine.explain([own]), reference.explain([own]), 1e-4)


@pytest.mark.openvino
def test_without_the_weights_explanations_only_run_the_model(
    exported: Path, tmp_path: Path
) -> None:
    for path in exported.iterdir():
        if path.name != WEIGHTS:
            (tmp_path / path.name).symlink_to(path)
    engine = Engine.load(tmp_path, CONTINUOUS)
    parameters = {"max_new_tokens": 2}
    gradients = {**parameters, "method": "input_x_gradient"}
    outcomes: Any = engine.explain([Request("Ada", gradients), Request("Ada", parameters)])
    assert isinstance(outcomes[0], Unprocessable)
    assert outcomes[1]["method"] == "feature_ablation"
