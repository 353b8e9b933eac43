"""What to load or export: a checkpoint, the YAML and the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from handlers.batching.padding import Batch, Padding
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.model_config import ModelConfig


@dataclass(frozen=True)
class ModelSpec:
    """What a format is asked to load or export: it never learns which task it is for.

    The weights lie in `directory`, which for an exported model need not have the checkpoint's other
    files. `calibration` has batches as the model will meet them, for a quantized export. An export
    with `padding` should take packed rows where it can; `per_token` are then the outputs for each
    slot.
    """

    directory: Path
    checkpoint: Checkpoint
    auto_class: str
    outputs: tuple[str, ...]
    config: ModelConfig
    device: torch.device
    calibration: Sequence[Batch] = ()
    padding: Padding | None = None
    per_token: tuple[str, ...] = ()

    def with_settings(self, **settings: Any) -> ModelSpec:
        """Return the spec with other values of keys of the `handler:` section."""
        handler = self.config.handler.model_copy(update=settings)
        return replace(self, config=self.config.model_copy(update={"handler": handler}))

    def in_float32(self) -> ModelSpec:
        """Return the spec of the same model in float32."""
        return self.with_settings(dtype="float32")
