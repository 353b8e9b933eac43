"""Measure whether cost is linear in the row length, with rows of 1, 2, 4 and 8 times the length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from transformers import PreTrainedTokenizerBase

from benchmarks.measurement import Measurement
from benchmarks.texts import mixed_texts

TIMES = (1, 2, 4, 8)
LONGEST = 64  # tokens; eight times as many fit into 512


@dataclass(frozen=True)
class Scaling:
    """The speed of the engine for rows of some length.

    Attributes:
        times: the length as a multiple of the shortest rows.
        tokens: mean length of a row.
        rounds: rows per second in each round.
        rows_per_second: median over the rounds.
        tokens_per_second: constant if cost is linear.
    """

    times: int
    tokens: float
    rounds: list[float]
    rows_per_second: float
    tokens_per_second: float


def longer_texts(tokenizer: PreTrainedTokenizerBase, count: int) -> dict[str, list[str]]:
    """Return the texts to measure by their length multiple."""
    return {
        str(times): mixed_texts(tokenizer, count, longest=LONGEST, times=times) for times in TIMES
    }


def scaling(
    measurements: Sequence[Measurement],
    texts: Mapping[str, list[str]],
    tokenizer: PreTrainedTokenizerBase,
) -> list[Scaling]:
    """Summarize measurements with texts of several lengths; empty if there are none."""
    lines = []
    for times, sent in texts.items():
        rounds = [
            each.longer[times].rows_per_second for each in measurements if times in each.longer
        ]
        if rounds:
            tokens = sum(map(len, tokenizer(sent)["input_ids"])) / len(sent)
            middle = median(rounds)
            lines.append(Scaling(int(times), tokens, rounds, middle, tokens * middle))
    return lines
