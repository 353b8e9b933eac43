"""Image segmentation: maps of classes, subtasks, and the limits of masks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from hf_serve.handlers.errors import RequestTooLarge, WrongCheckpoint
from hf_serve.handlers.tasks import image_segmentation
from hf_serve.handlers.tasks.bases.image import as_batch
from hf_serve.handlers.tasks.image_segmentation import class_map
from tests import tiny, vision_families
from tests.images import IMAGES, TEXTS
from tests.sentences import Sentence, refused
from tests.serving import Served, read_png

MODE = "image_segmentation"


def test_a_map_of_classes_has_the_class_with_the_highest_logit() -> None:
    logits = torch.randn(5, 8, 6, generator=torch.Generator().manual_seed(1))
    whole = functional.interpolate(logits[None], size=(31, 22), mode="bilinear")[0].argmax(0)
    assert torch.equal(class_map(logits, (31, 22)).long(), whole)


def test_each_pixel_is_in_one_mask(served: Callable[..., Served]) -> None:
    for image, found in zip(IMAGES, served(MODE).ask(TEXTS), strict=True):
        masks = [read_png(each["mask"]) for each in found]
        assert np.array_equal(sum(masks), np.full((image.height, image.width), 255))


@pytest.mark.parametrize(
    "family", ["BeitForSemanticSegmentation", "MaskFormerForInstanceSegmentation"]
)
def test_models_are_compared_by_the_class_of_each_pixel(tmp_path: Path, family: str) -> None:
    model = Served(vision_families.write(tmp_path / "model", family), MODE).engine
    task: Any = model.task
    rows = [task.preprocess(image) for image in IMAGES]
    for outputs in task.outputs_for_comparison(model.model, rows):
        (expected,) = task.image_processor.post_process_semantic_segmentation(as_batch(outputs))
        scores = task.decision_scores(outputs)["logits"]
        assert np.array_equal(scores.argmax(-1), expected.numpy()[::2, ::2])
        batch = {name: np.stack([each, each]) for name, each in outputs.items()}
        assert np.array_equal(task.decision_scores(batch)["logits"][1], scores)


def test_a_subtask_of_other_models_is_refused(served: Callable[..., Served]) -> None:
    assert served(MODE).refuse(TEXTS[0], subtask="panoptic") == (
        422,
        Sentence("subtask", "panoptic", "semantic"),
    )


@pytest.mark.parametrize("limit", ["MAX_CLASS_VALUES", "MAX_MASK_PIXELS"])
def test_maps_and_masks_are_limited(
    served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(image_segmentation, limit, 1_100)
    status, message = served(MODE).refuse(TEXTS[0])
    assert (status, "send a smaller image" in message) == (413, True)


def test_an_image_processor_that_segments_nothing_is_refused(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    ViTImageProcessorPil().save_pretrained(folder)
    with refused(WrongCheckpoint):
        Served(folder, MODE)


def test_maps_may_have_as_many_pixels_as_the_limit() -> None:
    image_segmentation._check_size(3, (4, 5), 60)
    with pytest.raises(RequestTooLarge):
        image_segmentation._check_size(3, (4, 5), 59)
