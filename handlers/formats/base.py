"""What every format gives: a loaded model that runs batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from handlers.batching import Batch, Padding
from handlers.checkpoint import Checkpoint
from handlers.config import ModelConfig
from handlers.packing import Packed
from handlers.sections import Compile


@dataclass(frozen=True)
class Wanted:
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


class Model(ABC):
    """A loaded model."""

    @abstractmethod
    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return the wanted outputs of a padded batch, without gradients."""

    def pack(self, padding: Padding, per_token: tuple[str, ...]) -> bool:
        """Find out whether packed rows can be run, remember how, and say so."""
        return False

    @property
    def packs(self) -> bool:
        """Whether `forward_packed` works."""
        return False

    @property
    def compiles_shapes(self) -> bool:
        """Whether each new shape costs something the first time, so that they should be few."""
        return False

    def forward_packed(self, packed: Packed) -> Mapping[str, torch.Tensor]:
        """Return the wanted outputs of packed rows, without gradients."""
        raise NotImplementedError

    def compile(self, options: Compile | None) -> bool:
        """Compile what runs batches when it next runs, with None undo that; say whether it is."""
        return False

    @property
    def embeddings(self) -> torch.nn.Module | None:
        """The module that turns ids into vectors; None where the format takes no gradients."""
        return None

    def trace(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return what `forward` does; with gradients where there are embeddings."""
        return self.forward(batch)

    @abstractmethod
    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        """Return token ids of shape (rows x sequences, prompt + new), left-padded as given."""


class ForwardOnly(Model):
    """A format that runs batches and cannot generate; its YAML is refused for generation."""

    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        raise NotImplementedError
