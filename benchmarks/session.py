"""Run the benchmark: create models and archives, and measure every contender in each round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeVar

from transformers import AutoConfig, PreTrainedTokenizerBase

from benchmarks.entry import Entry, entries
from benchmarks.flops import flops_per_row
from benchmarks.measurement import Plan
from benchmarks.models import bert_base
from benchmarks.scaling import longer_texts, scaling
from benchmarks.step import run_step
from benchmarks.summary import lines, record, starts
from benchmarks.texts import mixed_inputs
from hf_serve.demo_models.minilm import load_tokenizer

SCALED = "sequence_classification"
Item = TypeVar("Item")


@dataclass
class Session:
    """A benchmark run.

    Attributes:
        work: folder for models, archives and logs.
        plan: numbers of clients and durations.
        rounds: number of measurements of each contender.
        rows: number of texts to send.
        only: names of the contenders; empty for the default ones.
        tiny: whether to use a tiny model, for a trial run.
        peaks: the machine's peak matrix multiplication speed in TFLOP/s by dtype.
        report: called with a message for each step.
    """

    work: Path
    plan: Plan
    rounds: int
    rows: int
    only: Sequence[str]
    tiny: bool
    peaks: dict[str, float]
    report: Callable[[str], None]

    def measure(self, mode: str) -> dict[str, Any]:
        """Measure the contenders of a mode; one that fails is excluded and the others continue."""
        checkpoint = self._checkpoint(mode)
        inputs = mixed_inputs(mode, self._tokenizer, self.rows, seed=0)
        lengths = self._lengths(inputs)
        cost = flops_per_row(AutoConfig.from_pretrained(checkpoint), lengths)
        participants = entries(mode, checkpoint, self.work, self.only)
        longer = longer_texts(self._tokenizer, self.rows)
        for entry in participants:
            entry.longer = longer if (mode, entry.contender.name) == (SCALED, "kit") else {}
            run_step(entry, "preparing", self._prepare, self.report)
        for number in range(1, self.rounds + 1):
            for entry in rotated(participants, number - 1):
                step = f"{mode}, round {number} of {self.rounds}"
                run_step(entry, step, lambda each: each.measure(inputs, self.plan), self.report)
        return {
            "tokens": _statistics(lengths),
            "flops_per_row": cost,
            "lines": [asdict(line) for line in lines(participants, cost, self.peaks)],
            "starts": starts(participants),
            "scaling": [
                asdict(line)
                for entry in participants
                for line in scaling(entry.measurements, longer, self._tokenizer)
            ],
            "contenders": {entry.contender.name: record(entry) for entry in participants},
        }

    def _prepare(self, entry: Entry) -> None:
        entry.prepare(self.work / "unpacked", checked=not self.tiny)

    def _checkpoint(self, mode: str) -> Path:
        size = "tiny" if self.tiny else "base"
        return bert_base(self.work / "models" / f"bert_{size}_{mode}", mode, tiny=self.tiny)

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        return load_tokenizer()

    def _lengths(self, inputs: Sequence[Any]) -> list[int]:
        """Return the number of tokens of each input."""
        pairs = [each if isinstance(each, str) else tuple(each.values()) for each in inputs]
        return [len(ids) for ids in self._tokenizer(pairs)["input_ids"]]


def _statistics(lengths: Sequence[int]) -> dict[str, float]:
    return {
        "least": min(lengths),
        "median": median(lengths),
        "mean": mean(lengths),
        "most": max(lengths),
    }


def rotated(entries: Sequence[Item], number: int) -> list[Item]:
    """Return the entries in rotated order, because a machine may slow down during a round."""
    first = number % len(entries) if entries else 0
    return [*entries[first:], *entries[:first]]
