"""Whether cost grows with the tokens and no faster: rows of 1, 2, 4 and 8 times the length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from transformers import PreTrainedTokenizerBase

from benchmarks.texts import mixed_texts
from benchmarks.turn import Turn

TIMES = (1, 2, 4, 8)
LONGEST = 64  # tokens of the longest row, so that eight times as many fit into 512


@dataclass(frozen=True)
class Scaling:
    """The engine's speed in process with rows of some length.

    Attributes:
        times: how many times the length of the first rows.
        tokens: the mean length of a row.
        rounds: rows a second in each round.
        rows_per_second: the middle one of them.
        tokens_per_second: stays the same where cost is linear.
    """

    times: int
    tokens: float
    rounds: list[float]
    rows_per_second: float
    tokens_per_second: float


def longer_texts(tokenizer: PreTrainedTokenizerBase, count: int) -> dict[str, list[str]]:
    """Return the rows to measure, by how many times the length of the first they have."""
    return {
        str(times): mixed_texts(tokenizer, count, longest=LONGEST, times=times) for times in TIMES
    }


def scaling(
    turns: Sequence[Turn], texts: Mapping[str, list[str]], tokenizer: PreTrainedTokenizerBase
) -> list[Scaling]:
    """Return what turns with such rows came to; nothing where there were none."""
    lines = []
    for times, sent in texts.items():
        rounds = [each.longer[times].rows_per_second for each in turns if times in each.longer]
        if rounds:
            tokens = sum(map(len, tokenizer(sent)["input_ids"])) / len(sent)
            middle = median(rounds)
            lines.append(Scaling(int(times), tokens, rounds, middle, tokens * middle))
    return lines
