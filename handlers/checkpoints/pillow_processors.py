"""Image processors of Pillow that transformers has and does not find.

Without torchvision, :class:`AutoImageProcessor` reads images with Pillow. transformers 5.5 lists
five processors, Idefics3's and SegFormer's among them, as if they needed torchvision.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

from transformers.image_processing_utils import BaseImageProcessor
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

FILE = "preprocessor_config.json"
ENDINGS = re.compile("ImageProcessor|FeatureExtractor")


def read_pillow_processor(directory: Path) -> BaseImageProcessor | None:
    """Return the image processor of a checkpoint by the name in its file; None if it is unknown."""
    settings = json.loads((directory / FILE).read_text(encoding="utf-8"))
    named = str(settings.get("image_processor_type") or settings.get("feature_extractor_type"))
    name = f"{ENDINGS.split(named, maxsplit=1)[0]}ImageProcessorPil"
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
