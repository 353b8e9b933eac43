"""Graphs of models that read images: families, sizes, data types, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_serve.handlers import tasks
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.checkpoints.probe_inputs import ArrayInputs
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.export.manifest import ExportManifest
from hf_serve.handlers.formats import export
from hf_serve.handlers.types.request import Request
from tests import tiny, vision_families
from tests.images import TEXTS
from tests.modes.image_classification import drawn_for
from tests.sentences import refused
from tests.serving import Served, differences

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
MODE = "image_classification"
# Their queries have a class and a mask each. torch.export takes a minute for them.
BY_QUERIES = ("MaskFormerForInstanceSegmentation", "Mask2FormerForUniversalSegmentation")
FIXED = [
    name
    for name in vision_families.FAMILIES
    if name not in (*vision_families.FREE_SIZES, *BY_QUERIES)
    and tasks.get(vision_families.mode_of(name)).description.exports.supported
]
# Their graphs have the most operations.
LARGE = ("RTDetrForObjectDetection", "DPTForDepthEstimation", "SiglipModel")
PARAMETERS: dict[str, dict[str, Any]] = {
    "object_detection": {"threshold": 0.0},
    "image_segmentation": {"subtask": "semantic"},
    "zero_shot_image_classification": {"candidate_labels": ["a circle", "red"]},
}
SAMPLES = [Request(text) for text in TEXTS]
formats_of_images = pytest.mark.parametrize(
    "save_mode",
    [
        "torchscript",
        pytest.param("torch_export", marks=pytest.mark.nightly),
        pytest.param("onnx", marks=pytest.mark.nightly),
        pytest.param("openvino", marks=[pytest.mark.openvino, pytest.mark.nightly]),
    ],
)

formats_without_export = pytest.mark.parametrize(
    "save_mode",
    [
        "torchscript",
        pytest.param("openvino", marks=[pytest.mark.openvino, pytest.mark.nightly]),
    ],
)


def exported(folder: Path, mode: str, save_mode: str, **keys: Any) -> FidelityReport | None:
    """Export a checkpoint in its own folder, without its weights."""
    handler = {"mode": mode, "save_mode": save_mode, "dtype": "float32", **keys}
    report = export(folder, ModelConfig.parse({"handler": handler}), folder, SAMPLES)
    (folder / "model.safetensors").unlink()
    return report


@formats_of_images
@pytest.mark.parametrize(
    "family",
    [pytest.param(each, marks=pytest.mark.nightly) if each in LARGE else each for each in FIXED],
)
def test_answers_of_a_family_do_not_depend_on_the_format(
    tmp_path: Path, family: str, save_mode: str
) -> None:
    compare_answers(tmp_path, family, save_mode)


@formats_without_export
@pytest.mark.parametrize("family", BY_QUERIES)
def test_masks_of_queries_do_not_depend_on_the_format(
    tmp_path: Path, family: str, save_mode: str
) -> None:
    compare_answers(tmp_path, family, save_mode)


def compare_answers(tmp_path: Path, family: str, save_mode: str) -> None:
    mode = vision_families.mode_of(family)
    folder = vision_families.write(tmp_path / "model", family)
    parameters = PARAMETERS.get(mode, {})
    expected = Served(folder, mode).ask(TEXTS, **parameters)
    exported(folder, mode, save_mode)
    model = Served(folder, mode, save_mode=save_mode)
    alone = [model.ask(text, **parameters) for text in TEXTS]
    for found in (alone, model.ask(TEXTS, **parameters)):
        assert not differences(found, expected, 1e-4)


@formats_of_images
def test_images_and_labels_run_in_one_graph_whatever_their_numbers(
    checkpoint: Callable[..., Path], tmp_path: Path, save_mode: str
) -> None:
    mode = "zero_shot_image_classification"
    folder = shutil.copytree(checkpoint(mode), tmp_path / "model")
    labels = ["a circle", "a red square on the left", "blue"]
    inputs = [
        {"image": text, "candidate_labels": labels[: 1 + number % 3]}
        for number, text in enumerate(TEXTS)
    ]
    expected = Served(folder, mode).ask(inputs)
    exported(folder, mode, save_mode)
    model = Served(folder, mode, save_mode=save_mode)
    for found in ([model.ask(each) for each in inputs], model.ask(inputs)):
        assert not differences(found, expected, 1e-4)


@pytest.mark.parametrize("family", sorted(vision_families.FREE_SIZES))
def test_images_of_several_sizes_are_refused_when_a_model_is_packed(
    tmp_path: Path, family: str
) -> None:
    folder = vision_families.write(tmp_path / "model", family)
    with refused(WrongCheckpoint):
        exported(folder, vision_families.mode_of(family), "torchscript")


def test_a_model_without_pooler_has_a_graph_without_its_output(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", "image_feature_extraction")
    weights = load_file(folder / "model.safetensors")
    kept = {name: each for name, each in weights.items() if not name.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    exported(folder, "image_feature_extraction", "torchscript")
    assert ExportManifest.read(folder, ()).signature.outputs == ("last_hidden_state",)
    model = Served(folder, "image_feature_extraction", save_mode="torchscript")
    assert len(model.ask(TEXTS[0])[0]) == 17
    assert model.refuse(TEXTS[0], pool=True)[0] == 422


def test_a_graph_in_bfloat16_takes_pixels_as_they_are(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    expected = Served(folder, MODE, dtype="bfloat16").ask(TEXTS)
    report = exported(folder, MODE, "torchscript", dtype="bfloat16", min_agreement=0)
    assert report is not None
    assert report.rows == len(TEXTS)
    found = Served(folder, MODE, dtype="bfloat16", save_mode="torchscript").ask(TEXTS)
    assert not differences(found, expected, 1e-2)


@pytest.mark.parametrize("save_mode", ["neuron", "neuronx"])
def test_a_format_for_tokens_alone_is_refused_by_name(save_mode: str) -> None:
    handler = {"mode": MODE, "save_mode": save_mode, "max_length": 128}
    with refused(WrongConfig, "handler.save_mode", save_mode):
        export(Path(), ModelConfig.parse({"handler": handler}), Path())


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.parametrize("mode", [MODE, "image_feature_extraction", "image_segmentation"])
def test_8_bits_are_measured_on_other_images_than_those_of_the_calibration(
    tmp_path: Path, mode: str
) -> None:
    folder = tiny.write(tmp_path / "model", mode)
    exact = Served(folder, mode).ask(TEXTS)
    report = exported(folder, mode, "openvino", quantization="int8", min_agreement=0)
    assert report is not None
    assert report.rows == len(TEXTS) // 2
    assert (report.vectors is not None) == (mode == "image_feature_extraction")
    found = Served(folder, mode, save_mode="openvino", quantization="int8").ask(TEXTS)
    assert differences(found, exact, 1e-6)


@pytest.mark.openvino
@pytest.mark.nightly
def test_8_bits_that_change_labels_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The labels of the model differ by less than 8 bits can tell, also in the head."""
    monkeypatch.setattr("hf_serve.handlers.export.quantize.FLOAT_SHARES", (0.0,))
    folder = tiny.write(tmp_path / "model", MODE)
    weights = load_file(folder / "model.safetensors")
    head = weights["classifier.weight"]
    head[1:] = head[0] + torch.randn(2, 32, generator=torch.Generator().manual_seed(0)) * 1e-3
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    handler = {"mode": MODE, "save_mode": "openvino", "quantization": "int8", "dtype": "float32"}
    images = [Request(drawn_for(number)) for number in range(24)]
    with refused(WrongCheckpoint, 12, "min_agreement", 0.99):
        export(folder, ModelConfig.parse({"handler": handler}), folder, images)


def test_batches_of_arrays_have_the_shape_of_the_example(checkpoint: Callable[..., Path]) -> None:
    handler = HandlerSection(mode=MODE)
    task = tasks.get(MODE)(Checkpoint.read(checkpoint(MODE), handler), handler)
    inputs = task.graph_inputs
    assert inputs.names == ("pixel_values",)
    mask = np.ones((4, 4), dtype=np.int64)
    pixels = np.zeros((3, 4, 4), dtype=np.float32)
    module: Any = None
    batches = ArrayInputs({"pixel_values": pixels, "pixel_mask": mask}).batches(module)
    assert [tuple(each["pixel_values"].shape) for each in batches] == [
        (2, 3, 4, 4),
        (3, 3, 4, 4),
        (1, 3, 4, 4),
    ]
    assert all(bool((each["pixel_mask"] == 1).all()) for each in batches)
    assert all(each["pixel_values"].dtype == torch.float32 for each in batches)
