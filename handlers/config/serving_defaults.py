"""What packing adds to a YAML that leaves TorchServe's keys out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ServingDefaults:
    """TorchServe's keys for a mode, for those that a YAML does not set.

    TorchServe's own defaults are batches of one request, and no continuous batching.

    Attributes:
        max_batch_delay: `maxBatchDelay` in milliseconds. With 0, TorchServe makes batches of two at
            most.
        response_timeout: `responseTimeout` in seconds; None for TorchServe's default.
        continuous_batching: whether `continuousBatching` is the fastest, if no other key of the
            YAML excludes it.
        workers_of_exports: workers of an exported model on a CPU. While one sends its responses,
            another one computes.
    """

    batch_size: int = 16
    max_batch_delay: int = 1
    response_timeout: int | None = None
    continuous_batching: bool = False
    workers_of_exports: int = 1


# The modes whose files in model_configs/ have other values. They stand here, and not in the tasks,
# because packing a checkpoint imports no torch.
SERVING_DEFAULTS: Mapping[str, ServingDefaults] = {
    "image_text_to_text": ServingDefaults(batch_size=8),
    "mask_generation": ServingDefaults(batch_size=4),
    "sentence_embedding": ServingDefaults(workers_of_exports=2),
    "summarization": ServingDefaults(max_batch_delay=20),
    "text2text_generation": ServingDefaults(max_batch_delay=20),
    "text_generation": ServingDefaults(continuous_batching=True),
    "text_to_image": ServingDefaults(batch_size=1, response_timeout=300),
    "text_to_speech": ServingDefaults(batch_size=1),
    "translation": ServingDefaults(max_batch_delay=20),
}


def serving_defaults(mode: str) -> ServingDefaults:
    """Return TorchServe's keys for a mode."""
    return SERVING_DEFAULTS.get(mode, ServingDefaults())
