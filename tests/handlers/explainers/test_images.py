"""Images are explained by patches: as Captum does, in batches, within limits, with pictures."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from captum.attr import FeatureAblation, InputXGradient, IntegratedGradients, Occlusion
from PIL import Image
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from hf_serve.demo_models.synthetic_images import as_base64
from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import BadRequest, DeadlineExceeded, Unprocessable
from hf_serve.handlers.explainers import get, methods_for, targets
from hf_serve.handlers.explainers.bases.image import (
    ImageExplanationTarget,
    Patches,
    PixelBatch,
    PixelScale,
    heat_map,
    picture,
)
from hf_serve.handlers.model import ForwardOnlyModel, Model
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.process.ranks import seeded
from hf_serve.handlers.tasks.base import BaseTask
from hf_serve.handlers.types.request import Request
from tests import vision_families
from tests.clock import Clock
from tests.modes import cases
from tests.modes.image_classification import IMAGES
from tests.samples import explained_modes
from tests.sentences import Sentence
from tests.serving import Served, differences, explanation_of, read_png

Load = Callable[..., Served]
MODE = "image_classification"
MODES = [
    mode
    for mode in explained_modes()
    if issubclass(targets.get(mode) or object, ImageExplanationTarget)
]
METHODS = methods_for(PixelBatch, gradients=True)
# Patches of 4 x 4 pixels of an image of 32.
RESOLUTION, SIDE = 8, 4
STEPS = 6


def explain(served: Served, *inputs: Any, **parameters: Any) -> list[Any]:
    bodies = [explanation_of({"inputs": each, "parameters": parameters}) for each in inputs]
    return [answer for _, answer in served.post(*bodies)]


class Forward(torch.nn.Module):
    """The logit that is explained, as a function of pixels."""

    def __init__(self, served: Served, label: int) -> None:
        super().__init__()
        self._model, self._label = served.engine.model, label

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        outputs = self._model.forward_with_gradients({"pixel_values": pixels})
        return outputs["logits"][:, self._label]


def of_patches(values: torch.Tensor, join: Callable[..., torch.Tensor]) -> Any:
    """Return one number a patch of values of pixels, of shape (1, 3, 32, 32)."""
    squares = values[0].unfold(1, SIDE, SIDE).unfold(2, SIDE, SIDE)
    return join(squares.movedim(0, 2).flatten(2), dim=-1)


def by_captum(method: str, served: Served, image: str, label: int) -> Any:
    """Return what Captum's own class makes of an image, for each patch."""
    task: Any = served.engine.task
    row = task.preprocess(Image.open(BytesIO(base64.b64decode(image))).convert("RGB"))
    pixels = torch.from_numpy(row.features["pixel_values"])[None]
    baseline = pixels.mean(dim=(2, 3), keepdim=True).expand_as(pixels)
    forward, numbers = Forward(served, label), torch.arange(RESOLUTION).repeat_interleave(SIDE)
    if method == "integrated_gradients":
        values = IntegratedGradients(forward).attribute(
            pixels, baselines=baseline, n_steps=STEPS, method="gausslegendre"
        )
        return of_patches(values, torch.sum)
    if method == "input_x_gradient":
        return of_patches(InputXGradient(forward).attribute(pixels.requires_grad_()), torch.sum)
    with torch.no_grad():
        if method == "occlusion":
            values = Occlusion(forward).attribute(
                pixels,
                sliding_window_shapes=(3, 2 * SIDE, 2 * SIDE),
                strides=(3, SIDE, SIDE),
                baselines=baseline,
            )
        else:
            mask = (numbers[:, None] * RESOLUTION + numbers)[None, None]
            values = FeatureAblation(forward).attribute(
                pixels, baselines=baseline, feature_mask=mask
            )
    return of_patches(values, torch.mean)


@pytest.mark.parametrize(
    "method", ["integrated_gradients", "input_x_gradient", "feature_ablation", "occlusion"]
)
def test_attributions_are_those_of_captum_alone_and_in_company(served: Load, method: str) -> None:
    model, settings = served(MODE), {"method": method, "resolution": RESOLUTION, "n_steps": STEPS}
    (alone,) = explain(model, IMAGES[0], **settings)
    broken = base64.b64encode(b"no image").decode()
    first, wrong, *others = explain(model, IMAGES[1], broken, IMAGES[0], IMAGES[2], **settings)
    expected = by_captum(method, model, IMAGES[0], alone["target"]["index"])
    for found in (alone, others[0]):
        assert np.allclose(found["attributions"], expected.detach().numpy(), atol=2e-4)
    assert wrong["code"] == 400
    assert not differences(others[1], explain(model, IMAGES[2], **settings)[0], 1e-3)
    assert first["method"] == method


def explained_number(mode: str, outputs: Any, found: Any) -> float:
    """Return the number that an explanation is of, from the outputs of the model alone."""
    index = found["target"]["index"]
    if mode == "zero_shot_image_classification":
        return float(outputs.logits_per_image[0, index])
    if mode == "visual_question_answering":
        return float(outputs.logits[0, index])
    logits = outputs.logits[0]
    return float(logits[index][logits.argmax(0) == index].mean())


@pytest.mark.parametrize(
    "mode",
    ["zero_shot_image_classification", "visual_question_answering", "image_segmentation"],
)
def test_a_patch_has_the_difference_that_it_makes_to_the_model(served: Load, mode: str) -> None:
    engine: Any = served(mode).engine
    first, *others = cases(mode).rows[:3]
    settings = {"method": "feature_ablation", "resolution": 2}
    (found,) = engine.explain([Request(first, settings)])
    row = engine.task.encode([engine.task.parse(Request(first, {}))])[0][0]
    inputs, model = engine.task.collate([row]), engine.model.module
    with torch.no_grad(), seeded(0):
        outputs = model(**inputs)
    assert found["output"] == pytest.approx(explained_number(mode, outputs, found), abs=1e-4)
    hidden = inputs["pixel_values"].clone()
    height, width = (side // 2 for side in hidden.shape[2:])
    hidden[..., :height, :width] = hidden.mean(dim=(2, 3), keepdim=True)
    with torch.no_grad(), seeded(0):
        changed = model(**{**inputs, "pixel_values": hidden})
    if mode == "image_segmentation":
        # The pixels of the class remain those of the prediction.
        index = found["target"]["index"]
        of_class = outputs.logits[0].argmax(0) == index
        expected = float(changed.logits[0, index][of_class].mean())
    else:
        expected = explained_number(mode, changed, found)
    assert found["attributions"][0][0] == pytest.approx(found["output"] - expected, abs=1e-4)
    in_company = engine.explain([Request(each, settings) for each in (*others, first)])
    assert not differences(in_company[-1], found, 1e-4)


@pytest.mark.parametrize(
    "family", ["DetrForSegmentation", "Mask2FormerForUniversalSegmentation"], ids=str
)
def test_the_best_segment_of_a_class_is_explained(family: str, tmp_path: Path) -> None:
    engine: Any = Served(vision_families.write(tmp_path / "m", family), "image_segmentation").engine
    (found,) = engine.explain([Request(IMAGES[0], {"target": "square", "n_steps": 2})])
    row = engine.task.preprocess(Image.open(BytesIO(base64.b64decode(IMAGES[0]))).convert("RGB"))
    with torch.no_grad():
        outputs = engine.model.module(**engine.task.collate([row]))
    logits = outputs[next(iter({"class_queries_logits", "logits"} & outputs.keys()))][0]
    best = logits.softmax(-1)[:, 1].argmax()
    assert found["output"] == pytest.approx(float(logits[best, 1]), abs=1e-4)
    assert found["target"]["score"] == pytest.approx(float(logits.softmax(-1)[best, 1]), abs=1e-4)


@pytest.mark.parametrize("method", ["integrated_gradients", "input_x_gradient", "feature_ablation"])
def test_images_of_one_batch_may_have_patches_of_different_sizes(served: Load, method: str) -> None:
    settings = {"method": method, "n_steps": 2}
    requests = [Request(IMAGES[0], {**settings, "resolution": size}) for size in (2, 5, 3)]
    engine = served(MODE).engine
    together: list[Any] = engine.explain(requests)
    alone: list[Any] = [found for each in requests for found in engine.explain([each])]
    assert not differences(together, alone, 1e-4)
    assert [len(each["importances"]) for each in alone] == [2, 5, 3]


@pytest.mark.parametrize("method", METHODS)
def test_complete_methods_sum_to_the_difference_of_outputs(served: Load, method: str) -> None:
    (found,) = explain(served(MODE), IMAGES[0], method=method, resolution=3)
    difference = found["output"] - found["baseline_output"]
    error = float(np.sum(found["attributions"])) - difference
    assert found["convergence_delta"] == pytest.approx(error, abs=1e-4)
    assert np.linalg.norm(found["importances"]) == pytest.approx(1)
    complete = get(method).complete
    assert found["converged"] is (True if complete else None)
    assert abs(error) <= 0.05 * abs(difference) or not complete


@pytest.mark.parametrize("baseline", ["mean", "blur", "black"])
def test_the_baseline_is_an_image_of_the_request(served: Load, baseline: str) -> None:
    (found,) = explain(served(MODE), IMAGES[0], baseline=baseline, resolution=2)
    scale = PixelScale.of(served(MODE).engine.task.image_processor)  # type: ignore[attr-defined]
    image = np.asarray(Image.open(BytesIO(base64.b64decode(IMAGES[0]))).convert("RGB")) / 255
    pixels = np.moveaxis(image.astype(np.float32), -1, 0)
    shown = scale.to_colours(scale.baseline(baseline, (pixels - scale.mean) / scale.deviation))  # type: ignore[arg-type]
    known = {"mean": image.mean(axis=(0, 1)) * 255, "black": np.zeros(3)}
    if baseline == "blur":
        assert shown.std() < image.std() * 255
        assert np.allclose(shown.mean(), image.mean() * 255, atol=12)
    else:
        assert np.abs(shown - known[baseline]).max() <= 1
    assert found["baseline_output"] != found["output"]


@pytest.mark.parametrize("mode", MODES)
def test_a_format_without_gradients_is_explained_by_its_forward_alone(
    served: Load, mode: str
) -> None:
    whole = served(mode).engine
    engine = Engine(whole.task, Exported(whole.model))
    inputs = cases(mode).rows[0]
    request = Request(inputs, {"resolution": 3})
    (found,) = engine.explain([request])
    (expected,) = whole.explain([Request(inputs, {"resolution": 3, "method": "occlusion"})])
    assert not differences(found, expected, 1e-4)
    assert engine.describe().explanation["method"]["default"] == "occlusion"
    (refused,) = engine.explain([Request(inputs, {"method": "integrated_gradients"})])
    assert isinstance(refused, Unprocessable)
    assert str(refused) == Sentence("integrated_gradients", "feature_ablation", "occlusion")


class Exported(ForwardOnlyModel):
    """A model of which the forward pass alone is known."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self._model.forward(batch)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("method", [None, "integrated_gradients", "occlusion"])
def test_an_exported_model_with_its_weights_is_explained_as_its_checkpoint(
    checkpoint: Callable[..., Path], served: Load, tmp_path: Path, method: str | None
) -> None:
    source = checkpoint(MODE)
    keys = {"mode": MODE, "save_mode": "torchscript", "explain_with_checkpoint": True}
    config = ModelConfig.parse({"handler": keys})
    formats.export(source, config, tmp_path)
    copytree(source, tmp_path, dirs_exist_ok=True)
    engine = Engine.load(tmp_path, config)
    request = Request(IMAGES[0], {"resolution": 2, **({"method": method} if method else {})})
    (found,), (expected,) = engine.explain([request]), served(MODE).engine.explain([request])
    assert not engine.model.has_gradients
    assert not differences(found, expected, 1e-4)
    schema = engine.describe().explanation["method"]
    assert schema["default"] == "integrated_gradients"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_the_checkpoint_of_an_exported_model_is_tried_for_which_rows_may_share_a_batch(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig.parse(
        {"handler": {"mode": MODE, "save_mode": "torchscript", "explain_with_checkpoint": True}}
    )
    formats.export(checkpoint(MODE), config, tmp_path)
    copytree(checkpoint(MODE), tmp_path, dirs_exist_ok=True)
    engine = Engine.load(tmp_path, config)
    tried: list[Model] = []
    monkeypatch.setattr(BaseTask, "choose_batching", lambda _, model: tried.append(model))
    requests = [Request(image, {"resolution": 2}) for image in IMAGES[:2]]
    outcomes = engine.explain(requests) + engine.explain(requests)
    assert all(isinstance(each, dict) for each in outcomes)
    assert [model.has_gradients for model in tried] == [True]


def test_methods_for_other_rows_are_refused_with_those_that_fit(served: Load) -> None:
    (of_image,) = explain(served(MODE), IMAGES[0], method="layer_integrated_gradients")
    assert of_image["code"] == 422
    assert of_image["message"] == Sentence("layer_integrated_gradients", "feature_ablation")
    for method in ("occlusion", "integrated_gradients"):
        (of_text,) = explain(served("sequence_classification"), "A fine film.", method=method)
        assert of_text["code"] == 422
        assert of_text["message"] == Sentence(method, "feature_ablation")


def test_an_explanation_has_the_picture_and_a_heat_map_of_its_size(served: Load) -> None:
    wide = Image.open(BytesIO(base64.b64decode(IMAGES[0]))).convert("RGB").resize((96, 48))
    (found,) = explain(served(MODE), as_base64(wide), resolution=RESOLUTION, n_steps=2)
    shown = Image.open(BytesIO(base64.b64decode(found["image"])))
    layer = read_png(found["heat_map"])
    # The model reads 32 x 32 pixels, which are shown with the proportions of the image.
    assert found["size"] == [16, 32] == [shown.height, shown.width]
    assert found["image_size"] == [48, 96]
    assert layer.shape == (16, 32, 4)
    assert np.abs(np.asarray(shown).astype(int) - np.asarray(wide.resize((32, 16)))).mean() < 20
    importances = np.asarray(found["importances"])
    strongest = np.unravel_index(np.abs(importances).argmax(), importances.shape)
    alpha = layer[:, :, 3].reshape(RESOLUTION, 2, RESOLUTION, 4).mean(axis=(1, 3))
    assert alpha[strongest] == 255 == alpha.max()


def test_the_sides_of_a_heat_map_are_blue_for_and_orange_against() -> None:
    layer = np.asarray(heat_map([[1.0, -0.5], [0.0, 0.0]], (4, 4)))
    assert tuple(layer[0, 0]) == (47, 127, 214, 255)
    assert tuple(layer[0, 3]) == (229, 138, 31, 128)
    assert layer[3, :, 3].max() == 0


def test_an_image_of_any_proportions_is_divided_into_patches_of_almost_one_size() -> None:
    for height, width, resolution in ((32, 32, 14), (800, 1066, 14), (7, 300, 64), (3, 3, 64)):
        baseline = np.broadcast_to(np.zeros((3, 1, 1), dtype=np.float32), (3, height, width))
        patches = Patches.divide(baseline, resolution)
        sizes = np.bincount(patches.numbers().ravel(), minlength=len(patches))
        assert max(patches.rows, patches.columns) == min(resolution, max(height, width))
        assert sizes.min() > 0
        assert sizes.sum() == height * width
        rows, columns = height / patches.rows, width / patches.columns
        assert sizes.max() <= math.ceil(rows) * math.ceil(columns)


@pytest.mark.parametrize(
    ("crops", "size"),
    [({}, (32, 8)), ({"do_center_crop": True}, (32, 32)), ({"do_pad": 1}, (32, 32))],
)
def test_a_picture_that_was_cropped_keeps_its_own_proportions(
    crops: dict[str, Any], size: tuple[int, int]
) -> None:
    class Processor:
        do_rescale, do_normalize = True, True
        image_mean, image_std = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]

    processor = Processor()
    vars(processor).update(crops)
    shown = picture(PixelScale.of(processor), np.full((3, 32, 32), 2.0), 100, 400)
    assert shown.size == size
    assert shown.getpixel((1, 1)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("mode", "target", "status"),
    [
        (MODE, "square", 200),
        (MODE, 1, 200),
        (MODE, "hexagon", 400),
        (MODE, 3, 400),
        ("object_detection", 0, 200),
        ("object_detection", "square", 200),
        ("object_detection", 99, 400),
        ("object_detection", "hexagon", 400),
        ("zero_shot_image_classification", "river", 200),
        ("zero_shot_image_classification", 2, 200),
        ("zero_shot_image_classification", 3, 400),
        ("zero_shot_image_classification", "sea", 400),
        ("visual_question_answering", 1, 200),
        ("visual_question_answering", "sea", 400),
        ("image_segmentation", "square", 200),
        ("image_segmentation", 3, 400),
        ("image_feature_extraction", 5, 200),
        ("image_feature_extraction", 99, 400),
    ],
)
def test_a_target_is_explained_or_refused(
    served: Load, mode: str, target: Any, status: int
) -> None:
    settings = {"threshold": 0.0} if mode == "object_detection" else {}
    (found,) = explain(
        served(mode), cases(mode).rows[0], target=target, method="input_x_gradient", **settings
    )
    assert found.get("code", 200) == status
    if status == 400:
        assert "target" in found["message"]
    elif isinstance(target, str):
        assert found["target"]["label"] == target


def test_each_object_of_an_answer_is_explained_by_its_number(served: Load) -> None:
    model = served("object_detection")
    answer = model.ask(IMAGES[1], threshold=0.0)
    settings = {"method": "feature_ablation", "resolution": 2, "threshold": 0.0}
    for number, detected in enumerate(answer):
        (found,) = explain(model, IMAGES[1], target=number, **settings)
        assert {key: found["target"][key] for key in detected} == detected
        assert found["prediction"]["score"] == max(each["score"] for each in answer)
    (none,) = model.engine.explain([Request(IMAGES[1], {"target": 0, "threshold": 1.0})])
    assert isinstance(none, BadRequest)
    assert str(none) == Sentence("threshold", 1)


def test_a_square_that_leaves_patches_uncovered_is_refused(served: Load) -> None:
    (found,) = explain(served(MODE), IMAGES[0], method="occlusion", window=1, stride=2)
    assert found["code"] == 400
    assert found["message"] == Sentence("stride", 2, "window", 1)
    (whole,) = explain(served(MODE), IMAGES[0], method="occlusion", window=2, stride=2)
    assert "attributions" in whole
    (larger,) = explain(served(MODE), IMAGES[0], method="occlusion", window=50, resolution=2)
    assert np.ptp(larger["attributions"]) == 0


def test_an_expensive_explanation_does_not_take_the_time_of_cheap_ones(
    served: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, clock = served(MODE).engine, Clock()
    run = engine.model.forward_with_gradients

    def slowly(batch: Mapping[str, torch.Tensor]) -> Any:
        clock.now += 10
        return run(batch)

    monkeypatch.setattr(engine.model, "forward_with_gradients", slowly)
    expensive = Request(IMAGES[0], {"method": "shapley_value_sampling"})
    cheap = Request(IMAGES[1], {"method": "input_x_gradient"})
    first, second = engine.explain([expensive, cheap], deadline=Deadline(1000, clock))
    assert isinstance(first, DeadlineExceeded)
    assert isinstance(second, dict)
    (alone,) = engine.explain([expensive], deadline=Deadline(1000, clock))
    assert isinstance(alone, Unprocessable)
    assert "lower n_steps, n_samples or resolution" in str(alone)


def test_images_that_do_not_fit_in_memory_are_explained_in_smaller_passes(
    served: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = served(MODE).engine
    requests = [Request(image, {"method": "occlusion", "resolution": 3}) for image in IMAGES[:2]]
    expected = engine.explain(requests)
    run = engine.model.forward_with_gradients

    def limited(batch: Mapping[str, torch.Tensor]) -> Any:
        if len(batch["pixel_values"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return run(batch)

    monkeypatch.setattr(engine.model, "forward_with_gradients", limited)
    found: Sequence[Any] = engine.explain(requests)
    assert not differences(found, expected, 1e-3)


def test_images_of_a_model_that_reads_a_list_of_patches_are_refused(tmp_path: Path) -> None:
    """SigLIP 2 reads images of any resolution as a list of patches."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    part = {**sizes, "num_hidden_layers": 1}
    config = transformers.Siglip2Config(
        vision_config={**part, "patch_size": 8, "num_patches": 16},
        text_config={**part, "vocab_size": 9},
        num_labels=3,
    )
    transformers.Siglip2ForImageClassification(config).save_pretrained(tmp_path)
    Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16).save_pretrained(tmp_path)
    model = Served(tmp_path, MODE)
    assert model.ask(IMAGES[0])
    ((status, answer),) = model.post(explanation_of({"inputs": IMAGES[0]}))
    assert (status, answer["message"]) == (422, Sentence("patches"))
