"""Graphs of one shape, with a stand-in for the compiler that refuses every other shape."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import RequestTooLarge, WrongCheckpoint, WrongConfig
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.export.manifest import ExportManifest, Shape
from hf_serve.handlers.formats import check_config, export
from hf_serve.handlers.formats.neuron import FixedShapeModel
from hf_serve.handlers.model import ForwardOnlyModel
from hf_serve.handlers.types.request import Request
from tests.samples import inputs_of
from tests.sentences import refused
from tests.serving import Served, differences
from tests.standins import torch_neuronx

MODE = "sequence_classification"
KEYS: dict[str, Any] = {"mode": MODE, "save_mode": "neuronx", "batch_size": 4, "max_length": 24}
OLD_NAME = "traced_org-name_model_neuronx_batch_4.pt"
TEXTS = ["dull", "A fine film with a great cast", "Ada sings", "x", "The plot is thin", "lovely"]
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
Export = Callable[..., Path]


def samples(mode: str) -> list[Request]:
    return [Request(inputs_of(mode, text)) for text in TEXTS]


@pytest.fixture(scope="module")
def exported(checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Export:
    @cache
    def export_model(**keys: Any) -> Path:
        handler = {**KEYS, **keys}
        folder = tmp_path_factory.mktemp("neuronx") / "model"
        shutil.copytree(checkpoint(handler["mode"]), folder)
        export(folder, ModelConfig.parse({"handler": handler}), folder, samples(handler["mode"]))
        (folder / "model.safetensors").unlink()
        return folder

    return export_model


@pytest.fixture
def copied(exported: Export, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported(), tmp_path / "model"))


def as_in_the_old_example(folder: Path, name: str = OLD_NAME) -> Path:
    (folder / "export.json").unlink()
    (folder / "traced_model.pt").rename(folder / name)
    return folder


class Recorder(ForwardOnlyModel):
    """Takes the shape (2, 4) only, records its inputs, and returns them."""

    def __init__(self) -> None:
        self.given: list[dict[str, torch.Tensor]] = []

    def forward(self, batch: Any) -> dict[str, torch.Tensor]:
        assert all(tensor.shape == (2, 4) for tensor in batch.values())
        self.given.append(batch)
        return {"tokens": batch["input_ids"], "labels": batch["input_ids"]}


def recorded(rows: int, width: int) -> tuple[Recorder, dict[str, torch.Tensor]]:
    recorder = Recorder()
    ids = torch.arange(1, rows * width + 1).reshape(rows, width)
    model = FixedShapeModel(recorder, Shape(2, 4, ("tokens",)), {"input_ids": 9})
    return recorder, dict(model.forward({"input_ids": ids, "attention_mask": torch.ones_like(ids)}))


def test_batch_size_defaults_to_that_of_torchserve(checkpoint: Any, tmp_path: Path) -> None:
    handler = {**KEYS, "batch_size": None}
    config = ModelConfig.parse({"batchSize": 3, "handler": handler})
    export(checkpoint(MODE), config, tmp_path, samples(MODE))
    assert ExportManifest.read(tmp_path, ["logits"]).shape == Shape(3, 24, ())


def test_the_width_is_limited_by_the_checkpoint(exported: Export, served: Any) -> None:
    folder = exported(max_length=150)
    assert json.loads((folder / "export.json").read_text())["shape"]["width"] == 128
    model = Served(folder, **{**KEYS, "max_length": 150})
    assert not differences(model.ask("A fine film"), served(MODE).ask("A fine film"), 1e-4)


@pytest.mark.parametrize(
    ("mode", "per_token"),
    [
        (MODE, []),
        ("token_classification", ["logits"]),
        ("question_answering", ["start_logits", "end_logits"]),
    ],
)
def test_outputs_with_a_value_for_each_token_are_recorded(
    exported: Export, mode: str, per_token: list[str]
) -> None:
    manifest = json.loads((exported(mode=mode) / "export.json").read_text())
    assert manifest["shape"]["per_token"] == per_token


def test_labels_are_not_confused_with_as_many_tokens(tmp_path: Path, exported: Export) -> None:
    folder = exported(max_length=3)
    assert ExportManifest.read(folder, ["logits"]).shape == Shape(4, 3, ())
    model = Served(folder, **{**KEYS, "max_length": 3})
    assert len(model.ask("dull", top_k=None)) == 3


def test_more_rows_than_the_graph_takes_are_all_answered(exported: Export, served: Any) -> None:
    model = Served(exported(), **KEYS)
    plain = served(MODE, max_length=24)
    for count in range(1, len(TEXTS) + 1):
        contents = [{"inputs": text} for text in TEXTS[:count]]
        found, expected = model.post(*contents), plain.post(*contents)
        assert not differences([list(each) for each in found], [list(e) for e in expected], 1e-4)


def test_a_batch_is_filled_with_copies_of_a_row() -> None:
    recorder, outputs = recorded(rows=3, width=4)
    assert len(recorder.given) == 2
    assert recorder.given[1]["input_ids"].tolist() == [[9, 10, 11, 12]] * 2
    assert all(bool(batch["attention_mask"].all()) for batch in recorder.given)
    assert outputs["labels"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


def test_short_rows_are_padded_and_their_outputs_truncated() -> None:
    recorder, outputs = recorded(rows=1, width=2)
    assert recorder.given[0]["input_ids"].tolist() == [[1, 2, 9, 9]] * 2
    assert recorder.given[0]["attention_mask"].tolist() == [[1, 1, 0, 0]] * 2
    assert outputs["tokens"].tolist() == [[1, 2]]
    assert outputs["labels"].tolist() == [[1, 2, 9, 9]]


def test_a_row_that_is_too_long_for_the_graph_is_refused() -> None:
    with refused(RequestTooLarge, 5, 4):
        recorded(rows=1, width=5)


def test_a_long_text_is_truncated_or_refused_as_configured(exported: Export, served: Any) -> None:
    text = "A fine film with a great cast. " * 9
    plain = served(MODE, max_length=24)
    assert not differences(Served(exported(), **KEYS).ask(text), plain.ask(text), 1e-4)
    status, sentence = Served(exported(), **KEYS, truncation=False).refuse(text)
    assert (status, "this model takes 24" in sentence) == (413, True)


@pytest.mark.parametrize("save_mode", ["neuron", "neuronx"])
def test_a_missing_package_is_reported_before_the_graph_is_read(
    copied: Path, monkeypatch: pytest.MonkeyPatch, save_mode: str
) -> None:
    (copied / "traced_model.pt").write_bytes(b"of another machine")
    monkeypatch.setitem(sys.modules, f"torch_{save_mode}", None)
    with refused(WrongConfig, "pip install") as caught:
        Served(copied, **{**KEYS, "save_mode": save_mode})
    assert f"torch-{save_mode}" in str(caught.value)


def test_the_empty_package_of_the_public_index_is_reported(
    checkpoint: Any, exported: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch_neuronx", ModuleType("torch_neuronx"))
    with refused(WrongConfig, "pip install"):
        Served(exported(), **KEYS)
    with refused(WrongConfig):
        export(checkpoint(MODE), ModelConfig.parse({"handler": KEYS}), tmp_path, samples(MODE))


def test_each_worker_takes_one_core(exported: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURON_RT_NUM_CORES", raising=False)
    Served(exported(), **KEYS)
    assert os.environ["NEURON_RT_NUM_CORES"] == "1"


def test_a_graph_of_the_old_example_is_served(copied: Path, served: Any) -> None:
    rearrange(copied)
    model = Served(as_in_the_old_example(copied), **{**KEYS, "batch_size": None})
    contents = [{"inputs": text} for text in TEXTS]
    plain = served(MODE, max_length=24).post(*contents)
    assert not differences([list(e) for e in model.post(*contents)], [list(e) for e in plain], 1e-4)


def rearrange(folder: Path) -> None:
    """Make the graph take ids and mask only, as those of the old example do."""
    path = folder / "traced_model.pt"
    ones = torch.ones(4, 24, dtype=torch.long)
    graph = torch.jit.trace(IdsAndMask(torch.jit.load(path)), (ones, ones), check_trace=False)
    torch.jit.save(graph, path)


class IdsAndMask(torch.nn.Module):
    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.graph(ids, torch.zeros_like(ids), mask)


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        ({"max_length": 32}, ["max_length", 24, 32]),
        ({"max_length": 16}, ["max_length", 24, 16]),
        ({"batch_size": 8}, ["batch_size", 4, 8]),
    ],
)
def test_a_yaml_that_differs_from_the_graph_stops_the_load(
    exported: Export, keys: Any, facts: list[Any]
) -> None:
    with refused(WrongCheckpoint, *facts):
        Served(exported(), **{**KEYS, **keys})


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda tensor: tensor * torch.nan, ["logits", "nan"]),
        (lambda tensor: tensor + 1, ["logits", 1]),
        (lambda tensor: tensor.bfloat16().float() * 1.01, None),
    ],
)
def test_the_graph_is_compared_with_the_checkpoint(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, facts: Any
) -> None:
    trace = torch_neuronx.trace

    def changed(func: Any, example_inputs: Any) -> Any:
        return trace(Changed(func, change), example_inputs)

    monkeypatch.setattr(torch_neuronx, "trace", changed)
    config = ModelConfig.parse({"handler": KEYS})
    if facts is None:
        export(checkpoint(MODE), config, tmp_path, samples(MODE))
        return
    with refused(WrongCheckpoint, *facts):
        export(checkpoint(MODE), config, tmp_path, samples(MODE))


class Changed(torch.nn.Module):
    def __init__(self, func: torch.nn.Module, change: Any) -> None:
        super().__init__()
        self.func, self.change = func, change

    def forward(self, *inputs: torch.Tensor) -> Any:
        return tuple(self.change(output) for output in self.func(*inputs))


def test_a_lossy_graph_is_measured_on_samples(
    exported: Export, checkpoint: Any, tmp_path: Path
) -> None:
    found = FidelityReport.read(exported() / "quality.json")
    assert (found.rows, found.decisions, found.label_agreement) == (6, 6, 1.0)
    with refused(WrongConfig, "handler.calibration"):
        export(checkpoint(MODE), ModelConfig.parse({"handler": KEYS}), tmp_path)


def test_a_graph_that_agrees_too_little_is_refused(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = FidelityReport(10, 10, 0.9, 0.4)
    monkeypatch.setattr("hf_serve.handlers.export.fidelity.compare_outputs", lambda *_, **__: bad)
    with refused(WrongCheckpoint, "90.00%", 10):
        export(checkpoint(MODE), ModelConfig.parse({"handler": KEYS}), tmp_path, samples(MODE))


def test_an_export_without_a_device_is_refused(
    checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_device(func: Any, example_inputs: Any) -> Any:
        return torch.jit.script(NoDevice())

    monkeypatch.setattr(torch_neuronx, "trace", without_device)
    with refused(WrongCheckpoint):
        export(checkpoint(MODE), ModelConfig.parse({"handler": KEYS}), tmp_path, samples(MODE))


class NoDevice(torch.nn.Module):
    def forward(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if ids.numel() > 0:
            raise RuntimeError("no neuron device")
        return ids


@pytest.mark.parametrize("hardware", ["neuron", "neuronx"])
def test_the_old_hardware_key_names_the_format(hardware: str) -> None:
    usual = {"mode": MODE, "hardware": hardware, "batch_size": "1", "max_length": 150}
    for named in ({}, {"save_mode": "torchscript"}, {"save_mode": hardware}):
        config = ModelConfig.parse({"handler": {**usual, **named}})
        assert config.handler.save_mode == hardware, named


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        (
            {"hardware": "neuronx", "save_mode": "pretrained"},
            ["hardware: neuronx", "save_mode: pretrained"],
        ),
        ({"hardware": "neuronx", "save_mode": "neuron"}, ["save_mode: neuronx"]),
        ({"hardware": "tpu"}, ["handler.hardware", "tpu"]),
        ({"max_length": None}, ["save_mode: neuronx", "max_length"]),
        ({"max_length": None, "hardware": "neuronx", "save_mode": "torchscript"}, ["max_length"]),
    ],
)
def test_incompatible_keys_are_refused(keys: Any, facts: list[Any]) -> None:
    with refused(WrongConfig, *facts):
        check_config(ModelConfig.parse({"handler": {**KEYS, **keys}}))
