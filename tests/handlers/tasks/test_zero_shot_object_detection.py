"""Zero-shot object detection by GroundingDINO, which reads all labels as one text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image
from transformers import AutoTokenizer, GroundingDinoProcessor
from transformers.models.grounding_dino.image_processing_pil_grounding_dino import (
    GroundingDinoImageProcessorPil,
)

from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.types.request import Request
from tests.images import IMAGES, TEXTS
from tests.sentences import Sentence, refused
from tests.serving import Served, differences, recorded_shapes
from tests.tiny_multimodal import write_grounding_dino, write_owlv2

MODE = "zero_shot_object_detection"
LABELS = ["A fox ", "film"]
FAMILIES = ["GroundingDino", pytest.param("MMGroundingDino", marks=pytest.mark.nightly)]


@pytest.fixture(scope="module", params=FAMILIES)
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return write_grounding_dino(tmp_path_factory.mktemp("grounding") / "model", request.param)


@pytest.fixture(scope="module")
def model(folder: Path) -> Served:
    return Served(folder, MODE)


def answer(folder: Path, image: Image.Image, labels: list[str], **thresholds: float) -> list[Any]:
    """Return what transformers' processor and model answer, best object first."""
    processor = GroundingDinoProcessor(
        GroundingDinoImageProcessorPil.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    model = transformers.AutoModelForZeroShotObjectDetection.from_pretrained(folder).eval()
    inputs = processor(images=image, text=[labels], return_tensors="pt")
    with torch.no_grad():
        outputs = model(**inputs)
    (found,) = processor.post_process_grounded_object_detection(
        outputs, target_sizes=[(image.height, image.width)], **thresholds
    )
    names = ("xmin", "ymin", "xmax", "ymax")
    objects = [
        {"score": score.item(), "label": label, "box": dict(zip(names, box, strict=True))}
        for score, label, box in zip(
            found["scores"], found["text_labels"], found["boxes"].int().tolist(), strict=False
        )
    ]
    return sorted(objects, key=lambda each: -each["score"])


@pytest.mark.parametrize(
    ("labels", "thresholds"),
    [(LABELS, {}), (["music"], {"threshold": 0.0, "text_threshold": 0.6})],
)
def test_answers_are_those_of_the_processor_and_the_model(
    folder: Path, model: Served, labels: list[str], thresholds: dict[str, float]
) -> None:
    expected = [answer(folder, image, labels, **thresholds) for image in IMAGES]
    assert any(expected) or not thresholds
    given = {"candidate_labels": labels, **thresholds}
    alone = [model.ask(text, **given) for text in TEXTS]
    together = model.ask([*TEXTS, *reversed(TEXTS)], **given)
    for found in (alone, together[:4], together[:3:-1]):
        assert not differences(found, expected, 1e-4)


def test_images_whose_labels_have_equal_numbers_of_tokens_share_a_forward(
    model: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = recorded_shapes(model.engine, "input_ids", monkeypatch)
    labels = (["film"], ["music"], ["film", "music"])
    requests = [Request(TEXTS[0], {"candidate_labels": each, "threshold": 0}) for each in labels]
    found = model.engine.predict(requests)
    assert shapes == [(2, 4), (1, 6)]
    alone = [model.engine.predict([each])[0] for each in requests]
    assert not differences(found, alone, 1e-5)


def test_box_threshold_is_the_threshold(model: Served) -> None:
    asked = {"candidate_labels": LABELS, "top_k": 3}
    assert model.ask(TEXTS[0], box_threshold=0.0, **asked) == model.ask(
        TEXTS[0], threshold=0.0, **asked
    )
    assert not model.ask(TEXTS[0], threshold=1.0, **asked)


@pytest.mark.parametrize(
    ("labels", "status", "facts"),
    [
        (["a fox", "St. Paul"], 400, ["St. Paul", "."]),
        (["film"] * 40, 413, ["82", "40"]),
        ([" "], 400, []),
    ],
)
def test_wrong_labels_are_refused_and_their_neighbours_are_answered(
    model: Served, labels: list[str], status: int, facts: list[str]
) -> None:
    contents = [
        {"inputs": text, "parameters": {"candidate_labels": each}}
        for text, each in ((TEXTS[0], LABELS), (TEXTS[1], labels), (TEXTS[2], LABELS))
    ]
    (first, wrong, last) = model.post(*contents)
    assert (wrong[0], wrong[1]["message"]) == (status, Sentence(*facts))
    assert [first, last] == [model.post(each)[0] for each in (contents[0], contents[2])]


def test_a_model_that_reads_each_label_as_a_text_has_no_threshold_of_words(tmp_path: Path) -> None:
    write_owlv2(tmp_path, {"architectures": ["Owlv2ForObjectDetection"]}, 0)
    model = Served(tmp_path, MODE)
    found = model.refuse(TEXTS[0], candidate_labels=LABELS, text_threshold=0.2)
    assert found == (422, Sentence("text_threshold"))


def test_other_families_are_refused(folder: Path, tmp_path: Path) -> None:
    config = transformers.OmDetTurboConfig(architectures=["OmDetTurboForObjectDetection"])
    config.save_pretrained(tmp_path)
    with refused(WrongCheckpoint, "omdet-turbo", "GroundingDINO"):
        Served(tmp_path, MODE)
