"""Image processors of Pillow that transformers takes for ones of torchvision.

transformers 5.5 lists five processors, Idefics3's and SegFormer's among them, as if they needed
torchvision, and finds none of them without it. Their own modules load.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from transformers.image_processing_utils import BaseImageProcessor
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

FILE = "preprocessor_config.json"
ENDING = "ImageProcessor"


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
