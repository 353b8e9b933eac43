"""A loaded model, whatever its format: it runs batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from transformers import GenerationConfig

from handlers.batching.packing import PackedBatch
from handlers.batching.padding import Padding
from handlers.config.handler_section import Compile


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

    def forward_packed(self, packed: PackedBatch) -> Mapping[str, torch.Tensor]:
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


class ForwardOnlyModel(Model):
    """A format that runs batches and cannot generate; its YAML is refused for generation."""

    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        raise NotImplementedError
