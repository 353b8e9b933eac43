"""The processor of a checkpoint that reads images and texts together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, ProcessorMixin

from handlers.compat.transformers import join_processor, processor_class
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
    kind = processor_class(config)
    if kind is None:
        raise WrongCheckpoint(
            "config.json",
            f"is that of {config.model_type}, which has no processor of images and texts",
            "serve a checkpoint of another family",
        )
    parts = {"tokenizer": tokenizer, "image_processor": image_processor}
    try:
        settings, _ = kind.get_processor_dict(directory, local_files_only=True)
        return join_processor(kind, parts, settings)
    except Exception as error:  # noqa: BLE001 - each processor checks its config in its own way
        raise WrongCheckpoint(
            FILE, f"cannot be read ({summarize(error)})", f"pack the {FILE} of the checkpoint"
        ) from None
