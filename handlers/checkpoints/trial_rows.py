"""Rows of random tokens on which a model shows what padding and packing do to its outputs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from handlers.batching.rows import Row, TrialRows
from handlers.checkpoints.checkpoint import UNLIMITED, Checkpoint

SHORT = (7, 12, 3, 7)
# A longer trial would take seconds at each load.
LONGEST = 640
# Keys of the spans beyond which a layer treats tokens differently: attention windows and blocks,
# strides of convolutions, landmarks, chunks of a scan.
WINDOW = re.compile(r"window|local_att|block_size|chunk|stride|landmark|sampling_rate")


def trial_rows(checkpoint: Checkpoint, max_tokens: int | None) -> TrialRows:
    """Return rows of a checkpoint's tokens, each with the special tokens of a text.

    Args:
        checkpoint: the checkpoint.
        max_tokens: the longest row that the model may get; None if there is no limit.
    """
    positions = max_tokens or UNLIMITED
    reached = [width for width in windows(checkpoint.config) if width < positions]
    lengths: list[tuple[int, ...]] = [SHORT]
    if reached:
        lengths.append((7, min(row_beyond(reached), LONGEST, positions), 3))
    tried = max(lengths[-1])
    beyond = [width for width in reached if width >= tried]
    # A window of this width reaches half of it to either side.
    limit = max(tried, min(beyond) // 2) if beyond else math.inf
    limit = min(limit, short_positions(checkpoint.config) or math.inf)
    frame = _Frame.of(checkpoint)
    return TrialRows(
        [frame.rows([min(each, positions) for each in batch]) for batch in lengths], limit
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


def _named(values: Mapping[Any, Any]) -> Iterator[int]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _named(value)
        elif WINDOW.search(str(key)):
            each = value if isinstance(value, (list, tuple)) else [value]
            yield from (width for width in each if type(width) is int)


@dataclass(frozen=True)
class _Frame:
    """What a tokenizer puts around the tokens of a text, and the ids that texts have."""

    names: Sequence[str]
    before: Sequence[int]
    after: Sequence[int]
    ids: Sequence[int]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> _Frame:
        tokenizer = checkpoint.tokenizer
        names = [name for name in tokenizer.model_input_names if name != "attention_mask"]
        size = checkpoint.vocab_size
        special = set(tokenizer.all_special_ids)
        ids = [each for each in range(size // 2, size) if each not in special]
        return cls(names, *_special_tokens(tokenizer), ids)

    def rows(self, lengths: Sequence[int]) -> list[Row]:
        generator = torch.Generator().manual_seed(0)
        return [self._row(length, generator) for length in lengths]

    def _row(self, length: int, generator: torch.Generator) -> Row:
        inside = max(1, length - len(self.before) - len(self.after))
        drawn = torch.randint(len(self.ids), (inside,), generator=generator).tolist()
        ids = [*self.before, *(self.ids[each] for each in drawn), *self.after]
        return Row({name: ids if name == "input_ids" else [0] * len(ids) for name in self.names})


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after those of a text."""
    encoding = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoding["input_ids"], encoding["special_tokens_mask"]
    if 0 not in special:
        return [], ids
    first, last = special.index(0), len(special) - special[::-1].index(0)
    return ids[:first], ids[last:]
