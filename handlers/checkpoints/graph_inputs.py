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

from ..batching.padding import Batch
from ..batching.rows import RowKind
from .checkpoint import UNLIMITED, position_limit
from .probe_rows import MASK, WRITTEN, RowMaker, row_beyond, windows

SHAPES = ((2, 16), (3, 29), (1, 7))
COUNTS = (2, 3, 1)
# Texts beside arrays, whose number is another one, and their tokens.
TEXT_SHAPES = ((4, 9), (5, 16), (2, 7))
WIDTHS = (9, 16, 7)


class GraphInputs(ABC):
    """What an exported graph takes."""

    kind: RowKind

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the model's inputs."""

    @abstractmethod
    def free_axes(self, name: str, tensor: torch.Tensor) -> Sequence[int]:
        """Return the axes of an input that have any size; other axes have the example's size."""

    @abstractmethod
    def batches(self, module: PreTrainedModel) -> list[Batch]:
        """Return random batches of several shapes, the first with more rows than one."""


@dataclass(frozen=True)
class TokenInputs(GraphInputs):
    """Token ids and what goes with them, for any number of rows and tokens.

    Attributes:
        inputs: names of the inputs, including the attention mask.
        maker: makes the rows; None for rows without special tokens.
    """

    inputs: tuple[str, ...]
    maker: RowMaker | None = None
    kind = "tokens"

    @property
    def names(self) -> tuple[str, ...]:
        return self.inputs

    def free_axes(self, name: str, tensor: torch.Tensor) -> Sequence[int]:
        return range(tensor.ndim)

    def batch(self, module: PreTrainedModel, rows: int, width: int) -> Batch:
        """Return a random batch; a third of the last row is padding."""
        # CANINE reads all characters, so that its config has no vocabulary.
        maker = self.maker or RowMaker.unframed(int(module.config.get_text_config().vocab_size))
        return maker.batch(self.names, rows, width)

    def batches(self, module: PreTrainedModel) -> list[Batch]:
        """Return random batches, one of them wider than the windows of the config."""
        longest = position_limit(module.config) or UNLIMITED
        reached = [width for width in windows(module.config) if width < longest]
        shapes = (*SHAPES, (2, row_beyond(reached))) if reached else SHAPES
        return [self.batch(module, rows, min(width, longest)) for rows, width in shapes]


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

    def free_axes(self, name: str, tensor: torch.Tensor) -> Sequence[int]:
        return (0,)

    def batches(self, module: PreTrainedModel) -> list[Batch]:
        """Return batches of random numbers; whole numbers are the example's."""
        return [
            {name: _random(array, rows) for name, array in self.example.items()} for rows in COUNTS
        ]


@dataclass(frozen=True)
class AnyLengthInputs(ArrayInputs):
    """Arrays of audio of any length, for any number of rows.

    Waveforms have a mask of ones alone, because rows of other lengths never share a batch. The
    model gets it and the graph does not.

    Attributes:
        others: the arrays of longer and shorter audio.
    """

    others: Sequence[Mapping[str, np.ndarray[Any, Any]]]

    @property
    def is_waveform(self) -> bool:
        """Whether it is the samples of the audio, which have no padding, and no spectrogram."""
        return all(array.ndim == 1 for array in self.example.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.example if not (self.is_waveform and name == MASK))

    def free_axes(self, name: str, tensor: torch.Tensor) -> Sequence[int]:
        shapes = [example[name].shape for example in (self.example, *self.others)]
        sizes = [set(each) for each in zip(*shapes, strict=True)]
        return (0, *(axis for axis, found in enumerate(sizes, 1) if len(found) > 1))

    def batches(self, module: PreTrainedModel) -> list[Batch]:
        """Return batches of random numbers, each of another length."""
        return [
            {name: _random(array, rows) for name, array in example.items()}
            for rows, example in zip(COUNTS, (self.example, *self.others), strict=True)
        ]


@dataclass(frozen=True)
class SpeechInputs(ArrayInputs):
    """Spectrograms of one shape, for any number of rows, of which a decoder writes texts."""

    def batches(self, module: PreTrainedModel) -> list[Batch]:
        """Return batches of random spectrograms, and of tokens of their texts."""
        config, batches = module.config, super().batches(module)
        vocabulary, longest = int(config.vocab_size), int(config.max_target_positions)
        return [
            {**batch, **example_batch((WRITTEN,), vocabulary, rows, min(width, longest))}
            for batch, rows, width in zip(batches, COUNTS, WIDTHS, strict=True)
        ]


@dataclass(frozen=True)
class ArrayTextInputs(ArrayInputs):
    """Arrays of one shape, for any number of rows, beside any number of texts.

    Attributes:
        width: the number of tokens of each text; None for any.
    """

    texts: TokenInputs
    width: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (*super().names, *self.texts.names)

    def free_axes(self, name: str, tensor: torch.Tensor) -> Sequence[int]:
        has_any_width = name in self.texts.names and self.width is None
        return (0, 1) if has_any_width else (0,)

    def batches(self, module: PreTrainedModel) -> list[Batch]:
        """Return batches of random arrays and of random tokens."""
        config = module.config.get_text_config()
        longest = int(config.max_position_embeddings)
        return [
            {
                **arrays,
                **self.texts.batch(module, rows, self.width or min(width, longest)),
            }
            for arrays, (rows, width) in zip(super().batches(module), TEXT_SHAPES, strict=True)
        ]


def example_batch(names: Sequence[str], vocabulary: int, rows: int, width: int) -> Batch:
    """Return rows of random tokens without special ones; a third of the last row is padding."""
    return RowMaker.unframed(vocabulary).batch(names, rows, width)


def _random(array: np.ndarray[Any, Any], rows: int) -> torch.Tensor:
    example = torch.from_numpy(np.stack([array] * rows))
    if not example.is_floating_point():
        return example
    return torch.randn(example.shape, generator=torch.Generator().manual_seed(rows))
