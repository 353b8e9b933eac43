"""Image processors of Pillow that transformers has, or could have, and does not find.

Without torchvision, :class:`AutoImageProcessor` reads images with Pillow. transformers 5.5 lists
five processors, Idefics3's and SegFormer's among them, as if they needed torchvision. Of BLIP it
has no class.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

from transformers.image_processing_backends import PilBackend
from transformers.image_processing_utils import BaseImageProcessor
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD, PILImageResampling
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.segformer.image_processing_pil_segformer import SegformerImageProcessorPil

FILE = "preprocessor_config.json"
ENDING = "ImageProcessor"
ENDINGS = re.compile(f"{ENDING}|FeatureExtractor")


class BlipImageProcessorPil(PilBackend):
    """The image processor of BLIP: a square, scaled and normalized as for CLIP."""

    resample = PILImageResampling.BICUBIC
    image_mean = OPENAI_CLIP_MEAN
    image_std = OPENAI_CLIP_STD
    size = {"height": 384, "width": 384}
    default_to_square = True
    do_resize = True
    do_rescale = True
    do_normalize = True
    do_convert_rgb = True


# By the name in the file, without its ending.
REPLACED: dict[str, type[PilBackend]] = {
    "Blip": BlipImageProcessorPil,
    "Segformer": SegformerImageProcessorPil,
}


def read_replaced_processor(directory: Path) -> BaseImageProcessor | None:
    """Return the image processor of a checkpoint of SegFormer or BLIP; None for others."""
    path = directory / FILE
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    named = str(settings.get("image_processor_type") or settings.get("feature_extractor_type"))
    kind = REPLACED.get(ENDINGS.split(named, maxsplit=1)[0])
    if kind is None:
        return None
    processor: BaseImageProcessor = kind.from_pretrained(directory, local_files_only=True)
    return processor


def read_pillow_processor(directory: Path) -> BaseImageProcessor | None:
    """Return the image processor of a checkpoint by the name in its file; None if it is unknown."""
    settings = json.loads((directory / FILE).read_text(encoding="utf-8"))
    named = str(settings.get("image_processor_type"))
    name = f"{named.split(ENDING, maxsplit=1)[0]}{ENDING}Pil"
    families = [
        family
        for family, names in IMAGE_PROCESSOR_MAPPING_NAMES.items()
        if isinstance(names, dict) and names.get("pil") == name
    ]
    for family in (each.replace("-", "_") for each in families):
        try:
            module = import_module(f"transformers.models.{family}.image_processing_pil_{family}")
        except ImportError:
            continue
        if kind := getattr(module, name, None):
            processor: BaseImageProcessor = kind.from_pretrained(directory, local_files_only=True)
            return processor
    return None
