"""The processor of a checkpoint that reads images and texts together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import BaseVideoProcessor, PreTrainedConfig, ProcessorMixin
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.utils import PushToHubMixin

from handlers.errors import WrongCheckpoint, summarize

FILE = "processor_config.json"


def read_processor(
    directory: Path, config: PreTrainedConfig, tokenizer: Any, image_processor: Any
) -> ProcessorMixin:
    """Return the processor of a checkpoint, for images and texts.

    A part for videos, which would need torchvision, is left empty: no videos are read.

    Raises:
        WrongCheckpoint: it cannot be read, or the model has none.
    """
    kind = PROCESSOR_MAPPING.get(type(config), None)
    if kind is None:
        raise WrongCheckpoint(
            "config.json",
            f"is that of {config.model_type}, which has no processor of images and texts",
            "serve a checkpoint of another family",
        )
    parts = {"tokenizer": tokenizer, "image_processor": image_processor}
    try:
        settings, _ = kind.get_processor_dict(directory, local_files_only=True)
        given = [parts.get(name) or _NoVideos() for name in kind.get_attributes()]
        # The check of the parts looks for classes of videos, which the newest transformers lacks.
        changed = {"check_argument_for_proper_class": _check_nothing}
        unchecked: Any = type(kind.__name__, (kind,), changed)
        processor: ProcessorMixin = unchecked.from_args_and_dict(given, settings)
    except Exception as error:  # noqa: BLE001 - each processor checks its config in its own way
        raise WrongCheckpoint(
            FILE, f"cannot be read ({summarize(error)})", f"pack the {FILE} of the checkpoint"
        ) from None
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
