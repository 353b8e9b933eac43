"""Processors of images and texts, without torchvision."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import BaseVideoProcessor, ProcessorMixin
from transformers.image_processing_utils import BaseImageProcessor
from transformers.models.auto.image_processing_auto import (
    IMAGE_PROCESSOR_MAPPING_NAMES,
    AutoImageProcessor,
)
from transformers.utils import PushToHubMixin

FILE = "preprocessor_config.json"
ENDINGS = re.compile("ImageProcessor|FeatureExtractor")


def read_image_processor(directory: Path, **options: Any) -> BaseImageProcessor:
    """Return the image processor of a checkpoint.

    Without torchvision, transformers has processors of Pillow, and does not find all of them:
    transformers 5.5 lists Idefics3's and SegFormer's among five that seem to need torchvision. Its
    public `AutoImageProcessor` refuses without torchvision.

    Breaks when `AutoImageProcessor` of `image_processing_auto` refuses, too, or the processors of
    Pillow have other names.
    """
    try:
        return AutoImageProcessor.from_pretrained(directory, **options)
    except (ValueError, ImportError):
        settings = json.loads((directory / FILE).read_text(encoding="utf-8"))
        named = str(settings.get("image_processor_type") or settings.get("feature_extractor_type"))
        kind = pillow_processor(f"{ENDINGS.split(named, maxsplit=1)[0]}ImageProcessorPil")
        if kind is None:
            raise
        processor: BaseImageProcessor = kind.from_pretrained(directory, local_files_only=True)
        return processor


def pillow_processor(name: str) -> Any:
    """Return an image processor of Pillow by the name of its class; None if there is none.

    Breaks when the class of a family is not in its `image_processing_pil_` module.
    """
    families = [
        family.replace("-", "_")
        for family, names in IMAGE_PROCESSOR_MAPPING_NAMES.items()
        if isinstance(names, dict) and names.get("pil") == name
    ]
    for family in families:
        try:
            module = import_module(f"transformers.models.{family}.image_processing_pil_{family}")
        except ImportError:
            continue
        if kind := getattr(module, name, None):
            return kind
    return None


def join_processor(
    kind: type[ProcessorMixin], parts: Mapping[str, Any], settings: Mapping[str, Any]
) -> ProcessorMixin:
    """Return a processor of its parts; a part for videos, which needs torchvision, is left empty.

    Args:
        kind: the class of the processor.
        parts: the tokenizer and the image processor, by the names of the attributes.
        settings: the settings of the processor.

    Breaks when the parts are checked elsewhere than in `check_argument_for_proper_class`: the check
    looks for classes of videos, which the newest transformers does not have without torchvision.
    """
    given: Sequence[Any] = [parts.get(name) or _NoVideos() for name in kind.get_attributes()]
    unchecked: Any = type(
        kind.__name__, (kind,), {"check_argument_for_proper_class": _check_nothing}
    )
    processor: ProcessorMixin = unchecked.from_args_and_dict(given, settings)
    return processor


def _check_nothing(_processor: Any, _name: str, _part: Any) -> None:
    """Accept a part of a processor."""


class _NoVideos(BaseVideoProcessor, PushToHubMixin):
    """Stands in the place of a processor of videos, whose own class needs torchvision."""

    def __init__(self) -> None:
        """Set nothing: it is never called."""

    def to_dict(self) -> dict[str, Any]:
        """Return no settings, for a log entry of the processor."""
        return {}
