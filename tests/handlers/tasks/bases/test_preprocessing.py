"""Preprocessing in fewer steps has the numbers of the image processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers.models.efficientnet.image_processing_pil_efficientnet import (
    EfficientNetImageProcessorPil,
)
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from hf_serve.handlers.tasks.bases.image import Preprocessor
from tests import vision_families
from tests.images import IMAGES

PROCESSORS = {name: family[2] for name, family in vision_families.FAMILIES.items()}
STEPS = {"no rescaling": {"do_rescale": False}, "no normalization": {"do_normalize": False}}


def check(processor: Any, image: Image.Image) -> None:
    expected = processor(image, return_tensors="np")
    found = Preprocessor(processor)(image)
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name][0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", PROCESSORS)
def test_each_family_has_its_numbers_in_one_step(family: str) -> None:
    assert Preprocessor(PROCESSORS[family]).is_folded
    for image in IMAGES:
        check(PROCESSORS[family], image)


@pytest.mark.parametrize("steps", STEPS.values(), ids=list(STEPS))
def test_a_step_that_a_processor_leaves_out_is_left_out(steps: dict[str, bool]) -> None:
    check(ViTImageProcessorPil(size={"height": 32, "width": 32}, **steps), IMAGES[1])


def test_a_processor_with_another_formula_is_used_as_it_is() -> None:
    processor = EfficientNetImageProcessorPil(rescale_offset=True, include_top=True)
    assert not Preprocessor(processor).is_folded
    check(processor, IMAGES[2])
