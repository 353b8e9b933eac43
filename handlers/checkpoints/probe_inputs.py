"""Random inputs of a model: rows of tokens, framed as the tokenizer frames a text, and arrays.

Warm-up, the trials at load and the graphs of exports run them. Some classifiers find the end of a
text by its end token (BART, T5, CLIP), and fail for a row without one.

The inputs of a graph say on which random batches a model is traced, and compared with its export.
"""

from __future__ import annotations

import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..batching.padding import Tensors
from ..batching.rows import Row, RowKind, TrialRows
from .architecture import UNLIMITED, position_limit

MASK = "attention_mask"
# The tokens of a text that a decoder writes.
WRITTEN = "decoder_input_ids"
SHORT = (7, 12, 3, 7)
# A longer row would take seconds at each load.
LONGEST = 640
# Keys of the spans beyond which a layer treats tokens differently: attention windows and blocks,
# strides of convolutions, landmarks, chunks of a scan.
WINDOW = re.compile(r"window|local_att|block_size|chunk|stride|landmark|sampling_rate")

# Model types whose layers read padding: convolutions, Fourier transforms, pooled positions, hashes.
# The effect on few outputs can be as small as the rounding of bfloat16, so no trial is evidence.
READ_PADDING = frozenset(
    [
        *("canine", "convbert", "fnet", "funnel", "mobilebert", "nystromformer", "yoso"),
        "recurrent_gemma",
    ]
)


@dataclass(frozen=True)
class RowMaker:
    """Makes rows of random tokens.

    Attributes:
        ids: the ids that texts have.
        names: the names of the model's inputs, without the attention mask.
        before: the special tokens before the tokens of a text.
        after: the special tokens after them.
    """

    ids: Sequence[int]
    names: Sequence[str] = ("input_ids",)
    before: Sequence[int] = ()
    after: Sequence[int] = ()
    pad: int = 0

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, vocabulary: int, pad: int) -> RowMaker:
        """Return a maker of rows as a tokenizer frames them, for a model with a vocabulary."""
        names = [name for name in tokenizer.model_input_names if name != MASK]
        special = set(tokenizer.all_special_ids)
        plain = [each for each in _upper_half(vocabulary) if each not in special]
        return cls(plain or _upper_half(vocabulary), names, *_special_tokens(tokenizer), pad)

    @classmethod
    def unframed(cls, vocabulary: int) -> RowMaker:
        """Return a maker of rows without special tokens."""
        return cls(_upper_half(vocabulary))

    def rows(self, lengths: Sequence[int], seed: int = 0) -> list[Row]:
        """Return a row of each length, which are the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        return [self._row(length, generator) for length in lengths]

    def batch(self, names: Sequence[str], rows: int, width: int) -> Tensors:
        """Return a padded batch; a third of the last row is padding.

        Args:
            names: the names of the inputs; those that are neither ids nor the mask are zeros.
            width: the number of tokens of the others.
        """
        last = width - width // 3
        made = self.rows([*[width] * (rows - 1), last], seed=rows * width)
        batch = {name: torch.zeros(rows, width, dtype=torch.long) for name in names}
        texts = [[*row.features["input_ids"], *[self.pad] * (width - len(row))] for row in made]
        batch["input_ids"] = batch[WRITTEN] = torch.tensor(texts)
        batch[MASK] = torch.ones(rows, width, dtype=torch.long)
        batch[MASK][-1, last:] = 0
        return {name: batch[name] for name in names}

    def _row(self, length: int, generator: torch.Generator) -> Row:
        inside = max(0, length - len(self.before) - len(self.after))
        drawn = torch.randint(len(self.ids), (inside,), generator=generator).tolist()
        # Of a row that is shorter than its frame, the end is what a model needs.
        ids = [*self.before, *(self.ids[each] for each in drawn), *self.after][-length:]
        return Row({name: ids if name == "input_ids" else [0] * length for name in self.names})


def _upper_half(vocabulary: int) -> range:
    """Return the ids that special tokens seldom have."""
    return range(vocabulary // 2, vocabulary)


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after the tokens of a text."""
    encoding = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoding["input_ids"], encoding["special_tokens_mask"]
    if 0 not in special:
        return [], ids
    first, last = special.index(0), len(special) - special[::-1].index(0)
    return ids[:first], ids[last:]


def probe_rows(config: PreTrainedConfig, maker: RowMaker, max_tokens: int | None) -> TrialRows:
    """Return rows on which a model shows what padding and packing do to its outputs.

    They are evidence for no row, a limit of 0, where the model type is known to read padding.

    Args:
        max_tokens: the longest row that the model may get; None if there is no limit.
    """
    positions = max_tokens or sys.maxsize
    reached = [width for width in windows(config) if width < positions]
    lengths: list[tuple[int, ...]] = [SHORT]
    if reached:
        lengths.append((7, min(row_beyond(reached), LONGEST, positions), 3))
    tried = max(lengths[-1])
    beyond = [width for width in reached if width >= tried]
    # A window of this width reaches half of it to either side.
    limit = max(tried, min(beyond) // 2) if beyond else math.inf
    for short in (short_positions(config), full_attention_tokens(config)):
        limit = min(limit, short or math.inf)
    if config.model_type in READ_PADDING:
        limit = 0
    return TrialRows(
        [maker.rows([min(each, positions) for each in batch]) for batch in lengths], limit
    )


def row_beyond(widths: Sequence[int]) -> int:
    """Return the length of a row in which many tokens are further apart than any of the widths."""
    return max(widths) * 3 // 2 + 12


def windows(config: PreTrainedConfig) -> list[int]:
    """Return the widths of the windows, blocks and chunks that a config names, nested ones too."""
    return sorted({width for width in _named(config.to_dict()) if width > 1})


def short_positions(config: PreTrainedConfig) -> int | None:
    """Return the number of positions up to which LongRoPE has its short factors.

    One text beyond it gives all texts of its batch the long ones. None for other models.
    """
    parameters = getattr(config.get_text_config(), "rope_parameters", None) or {}
    if parameters.get("rope_type") != "longrope":
        return None
    return int(parameters["original_max_position_embeddings"])


def full_attention_tokens(config: PreTrainedConfig) -> int | None:
    """Return the tokens of a batch up to which a BigBird with sparse attention has full attention.

    Beyond it, each token reads the last blocks of the padded row. None for other models.
    """
    if getattr(config, "attention_type", None) != "block_sparse":
        return None
    return int((5 + 2 * config.num_random_blocks) * config.block_size)


def _named(values: Mapping[Any, Any]) -> Iterator[int]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _named(value)
        elif WINDOW.search(str(key)):
            each = value if isinstance(value, (list, tuple)) else [value]
            yield from (width for width in each if type(width) is int)


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
    def batches(self, module: PreTrainedModel) -> list[Tensors]:
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

    def batch(self, module: PreTrainedModel, rows: int, width: int) -> Tensors:
        """Return a random batch; a third of the last row is padding."""
        # CANINE reads all characters, so that its config has no vocabulary.
        maker = self.maker or RowMaker.unframed(int(module.config.get_text_config().vocab_size))
        return maker.batch(self.names, rows, width)

    def batches(self, module: PreTrainedModel) -> list[Tensors]:
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

    def batches(self, module: PreTrainedModel) -> list[Tensors]:
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

    def batches(self, module: PreTrainedModel) -> list[Tensors]:
        """Return batches of random numbers, each of another length."""
        return [
            {name: _random(array, rows) for name, array in example.items()}
            for rows, example in zip(COUNTS, (self.example, *self.others), strict=True)
        ]


@dataclass(frozen=True)
class SpeechInputs(ArrayInputs):
    """Spectrograms of one shape, for any number of rows, of which a decoder writes texts."""

    def batches(self, module: PreTrainedModel) -> list[Tensors]:
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

    def batches(self, module: PreTrainedModel) -> list[Tensors]:
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


def example_batch(names: Sequence[str], vocabulary: int, rows: int, width: int) -> Tensors:
    """Return rows of random tokens without special ones; a third of the last row is padding."""
    return RowMaker.unframed(vocabulary).batch(names, rows, width)


def _random(array: np.ndarray[Any, Any], rows: int) -> torch.Tensor:
    example = torch.from_numpy(np.stack([array] * rows))
    if not example.is_floating_point():
        return example
    return torch.randn(example.shape, generator=torch.Generator().manual_seed(rows))
