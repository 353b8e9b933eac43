"""What every mode for images does: the answers of its pipeline, files as bodies, hostile files."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers import pipeline
from transformers.models.sam import image_processing_pil_sam

from hf_serve.demo_models.synthetic_images import as_base64, as_png
from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.types.model_info import IMAGE_COLUMN, TEXT_COLUMN
from hf_serve.handlers.types.request import Request
from tests import tiny, vision_families
from tests.images import BROKEN, FILES, IMAGES, TEXTS, raw
from tests.modes import cases, each_mode
from tests.sentences import Sentence, refused
from tests.serving import Served, differences

# Modes whose inputs may be an image alone, and are no text.
IMAGE_MODES = [
    mode
    for mode in modes()
    for columns in [tasks.get(mode).description.wire.input_columns]
    if IMAGE_COLUMN in columns and TEXT_COLUMN not in columns
]
CLOSE = 1e-4


@pytest.fixture(params=IMAGE_MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# What files are is read in one place for all modes of images.
of_any_mode = pytest.mark.parametrize("mode", each_mode(IMAGE_MODES), indirect=True)


@pytest.fixture
def model(served: Callable[..., Served], mode: str) -> Served:
    return served(mode, **cases(mode).settings)


@pytest.mark.parametrize("number", range(3))
def test_answers_are_those_of_the_pipeline(
    checkpoint: Callable[..., Path], model: Served, mode: str, number: int
) -> None:
    parameters = dict((*cases(mode).parameters, {})[number])
    _compare(checkpoint(mode), mode, model, parameters)


@pytest.mark.parametrize("family", vision_families.FAMILIES)
def test_answers_of_a_family_are_those_of_the_pipeline(tmp_path: Path, family: str) -> None:
    mode = vision_families.mode_of(family)
    folder = vision_families.write(tmp_path / "model", family)
    model = Served(folder, mode, **cases(mode).settings)
    for parameters in vision_families.PARAMETERS.get(family, [{}]):
        _compare(folder, mode, model, parameters)


@pytest.fixture(autouse=True)
def mask_generation_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the method of SAM's image processor that needs torchvision."""
    processor = image_processing_pil_sam.SamImageProcessorPil
    monkeypatch.setattr(processor, "post_process_for_mask_generation", _without_overlaps)


def _without_overlaps(
    _processor: Any, masks: Any, scores: Any, boxes: Any, threshold: float
) -> Any:
    """Return the masks whose box no better one overlaps, with their scores and boxes."""
    kept: list[int] = []
    for number in scores.argsort(descending=True, stable=True).tolist():
        if all(_overlap(boxes[number], boxes[each]) <= threshold for each in kept):
            kept.append(number)
    found = [_decoded(masks[number]) for number in kept]
    return found, scores[kept], [masks[number] for number in kept], boxes[kept].float()


def _overlap(first: Any, second: Any) -> float:
    sides = torch.minimum(first[2:], second[2:]) - torch.maximum(first[:2], second[:2])
    common = float(sides.clamp(min=0).prod())
    areas = [float((box[2:] - box[:2]).prod()) for box in (first, second)]
    return common / (sum(areas) - common) if sum(areas) else 0.0


def _decoded(mask: Any) -> Image.Image:
    """Return the picture of a mask in run lengths, which go down the columns from black."""
    height, width = mask["size"]
    values = np.arange(len(mask["counts"])) % 2 * 255
    pixels = np.repeat(values, mask["counts"]).reshape(width, height).T
    return Image.fromarray(pixels.astype(np.uint8))


def _compare(folder: Path, mode: str, model: Served, parameters: dict[str, Any]) -> None:
    """Compare answers with those of transformers: alone, and in random company."""
    task = model.engine.task
    reference = _reference(folder, mode, task)
    ours = {name: parameters[name] for name in parameters if name == "return_predicted_depth"}
    theirs = {name: value for name, value in parameters.items() if name not in ours}
    expected = [reference(image, **{**task.defaults, **theirs}) for image in IMAGES]
    alone = [model.ask(text, **parameters) for text in TEXTS]
    together = model.ask([*TEXTS, *reversed(TEXTS)], **parameters)
    for found in (alone, together[:4], together[:3:-1]):
        assert not differences(*_comparable(found, expected), CLOSE)


@cache
def _reference(folder: Path, mode: str, task: Any) -> Callable[..., Any]:
    """Return the pipeline of a mode with a checkpoint, or what transformers 4 had as one."""
    auto_class = getattr(transformers, task.auto_class_for(task.checkpoint.config))
    model = auto_class.from_pretrained(folder)
    if mode == "image_to_text":
        return partial(_generated, model, task)
    return pipeline(
        mode.replace("_", "-"),
        model=model,
        image_processor=task.checkpoint.image_processor,
        tokenizer=getattr(task, "tokenizer", None),
        device=torch.device("cpu"),
    )


def _generated(model: Any, task: Any, image: Image.Image, **parameters: Any) -> list[Any]:
    inputs = task.checkpoint.image_processor(images=image, return_tensors="pt")
    written = model.generate(**inputs, **parameters)
    return [
        {"generated_text": task.tokenizer.decode(ids, skip_special_tokens=True)} for ids in written
    ]


def _comparable(found: list[Any], expected: list[Any]) -> tuple[Any, Any]:
    """Return answers and those of the pipeline, tensors as lists and pictures as PNG.

    Numbers that the answers leave out are left out.
    """
    theirs = _as_json(expected)
    if not isinstance(found[0], dict):
        return found, theirs
    return found, [{name: each[name] for name in found[0]} for each in theirs]


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, Image.Image):
        return as_base64(value)
    return value.tolist() if isinstance(value, torch.Tensor) else value


@of_any_mode
def test_the_body_may_be_the_file(model: Served) -> None:
    expected = model.ask(TEXTS[1])
    for content_type in ("", "image/png", "application/octet-stream", "image/*"):
        ((status, answer),) = model.post(raw(FILES[1], content_type))
        assert status == 200, content_type
        assert not differences(answer, expected, 1e-6)


def test_a_broken_file_fails_alone(model: Served) -> None:
    good = [model.ask(text) for text in TEXTS]
    bodies = [raw(FILES[0]), raw(BROKEN), raw(FILES[1]), {"inputs": "AAAA"}]
    first, broken, second, wrong = model.post(*bodies)
    assert [first[0], broken[0], second[0], wrong[0]] == [200, 400, 200, 400]
    assert not differences([first[1], second[1]], good[:2], CLOSE)
    text = base64.b64encode(BROKEN).decode()
    found = model.ask([TEXTS[2], text, TEXTS[3]])
    assert found[1]["message"].startswith("The image is no image that can be read")
    assert not differences([found[0], found[2]], good[2:], CLOSE)


@of_any_mode
def test_large_images_are_refused_with_the_limit(served: Callable[..., Served], mode: str) -> None:
    limits = {"max_image_pixels": 2_000, "max_image_bytes": 2_000}
    model = served(mode, **cases(mode).settings, **limits)
    assert model.refuse(TEXTS[0]) == (
        413,
        Sentence("48", "2,000"),
    )
    status, message = model.refuse(base64.b64encode(bytes(2_001)).decode())
    assert (status, "2,001 bytes, and this model takes 2,000" in message) == (413, True)


def test_a_tiny_image_is_answered_or_refused_by_itself(model: Served) -> None:
    good = model.ask(TEXTS[0])
    for width, height in ((1, 1), (1, 40), (3, 2)):
        text = base64.b64encode(as_png(Image.new("RGB", (width, height)))).decode()
        tiny_one, other = model.ask([text, TEXTS[0]])
        assert not differences(other, good, CLOSE)
        if isinstance(tiny_one, dict) and "code" in tiny_one:
            assert tiny_one["code"] == 422
            assert f"{width} x {height} pixels, which the image processor" in tiny_one["message"]


@of_any_mode
def test_a_checkpoint_without_its_image_processor_is_refused(tmp_path: Path, mode: str) -> None:
    folder = tiny.write(tmp_path / "model", mode)
    (folder / "preprocessor_config.json").unlink()
    with refused(WrongCheckpoint, "preprocessor_config.json"):
        Served(folder, mode)


@of_any_mode
def test_a_model_of_images_tokenizes_no_texts(model: Served, mode: str) -> None:
    (outcome,) = model.engine.tokenize([Request("a text")])
    assert str(outcome) == Sentence(mode)
