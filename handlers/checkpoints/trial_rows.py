"""Rows of random tokens on which a model shows what padding and packing do to its outputs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformers import PreTrainedConfig

from handlers.batching.rows import TrialRows
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
    maker = checkpoint.row_maker
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


def _named(values: Mapping[Any, Any]) -> Iterator[int]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _named(value)
        elif WINDOW.search(str(key)):
            each = value if isinstance(value, (list, tuple)) else [value]
            yield from (width for width in each if type(width) is int)
