"""The inputs of a graph: tokens of texts, or arrays such as pixels.

They say on which random batches a model is traced, and compared with its export.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from handlers.batching.padding import Batch
from handlers.batching.rows import RowKind
from handlers.checkpoints.checkpoint import UNLIMITED, first_position
from handlers.checkpoints.trial_rows import row_beyond, windows

SHAPES = ((2, 16), (3, 29), (1, 7))
COUNTS = (2, 3, 1)


class GraphInputs(ABC):
    """What an exported graph takes.

    Attributes:
        kind: the kind of its rows.
    """

    kind: RowKind

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the model's inputs."""

    @abstractmethod
    def batches(self, module: PreTrainedModel) -> list[Batch]:
        """Return random batches of several shapes, the first with more rows than one."""


@dataclass(frozen=True)
class TokenInputs(GraphInputs):
    """Token ids and what goes with them, for any number of rows and tokens.

    Attributes:
        names: names of the inputs, including the attention mask.
    """

    names: tuple[str, ...]
    kind = "tokens"

    def batches(self, module: PreTrainedModel) -> list[Batch]:
        """Return random batches, one of them wider than the windows of the config."""
        config = module.config.get_text_config()
        offset = first_position(module.config)
        longest = int(getattr(config, "max_position_embeddings", None) or UNLIMITED) - offset
        reached = [width for width in windows(module.config) if width < longest]
        shapes = (*SHAPES, (2, row_beyond(reached))) if reached else SHAPES
        return [
            example_batch(self.names, int(config.vocab_size), rows, min(width, longest))
            for rows, width in shapes
        ]


@dataclass(frozen=True)
class ArrayInputs(GraphInputs):
    """Arrays of one shape, for any number of rows.

    Attributes:
        example: the arrays of one row by the name of the input.
    """

    example: Mapping[str, np.ndarray[Any, Any]]
    kind = "arrays"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.example)

    def batches(self, module: PreTrainedModel) -> list[Batch]:
        """Return batches of random numbers; whole numbers are those of the example."""
        return [
            {name: _random(array, rows) for name, array in self.example.items()} for rows in COUNTS
        ]


def example_batch(names: Sequence[str], vocabulary: int, rows: int, width: int) -> Batch:
    """Return rows of random tokens; a third of the last row is padding.

    Args:
        names: names of the model inputs.
        vocabulary: the size of the vocabulary.
        rows: the number of rows.
        width: the number of tokens per row.
    """
    generator = torch.Generator().manual_seed(rows * width)
    batch = {name: torch.zeros(rows, width, dtype=torch.long) for name in names}
    batch["input_ids"] = torch.randint(
        vocabulary // 2, vocabulary, (rows, width), generator=generator, dtype=torch.long
    )
    batch["attention_mask"] = torch.ones(rows, width, dtype=torch.long)
    batch["attention_mask"][-1, width - width // 3 :] = 0
    return {name: batch[name] for name in names}


def _random(array: np.ndarray[Any, Any], rows: int) -> torch.Tensor:
    example = torch.from_numpy(np.stack([array] * rows))
    if not example.is_floating_point():
        return example
    return torch.randn(example.shape, generator=torch.Generator().manual_seed(rows))
