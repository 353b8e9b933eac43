"""One run of the benchmark: models, archives, and the turns of every contender, round by round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerBase

from benchmarks.entry import Entry, entries
from benchmarks.flops import flops_per_row
from benchmarks.models import bert_base
from benchmarks.scaling import longer_texts, scaling
from benchmarks.summary import lines, record, starts
from benchmarks.texts import mixed_inputs
from benchmarks.turn import Plan
from handlers.errors import KitError
from scripts.kit.demo_models.minilm import load_tokenizer

SCALED = "sequence_classification"


@dataclass
class Session:
    """What is measured, and how.

    Attributes:
        work: takes models, archives and logs.
        plan: how long each turn measures.
        rounds: how many turns each contender takes.
        rows: how many texts are sent in turn.
        only: names of the contenders; empty for all.
        tiny: whether the model is a tiny one, with which figures mean nothing.
        peaks: the machine's best matrix products in TFLOP/s, by dtype.
        say: is told of each step.
    """

    work: Path
    plan: Plan
    rounds: int
    rows: int
    only: Sequence[str]
    tiny: bool
    peaks: dict[str, float]
    say: Callable[[str], None]

    def measure(self, mode: str) -> dict[str, Any]:
        """Return all that a mode's contenders did; one that fails is out, the others go on."""
        checkpoint = self._checkpoint(mode)
        inputs = mixed_inputs(mode, self._tokenizer, self.rows, seed=0)
        lengths = self._lengths(inputs)
        cost = flops_per_row(AutoConfig.from_pretrained(checkpoint), lengths)
        taking_part = entries(mode, checkpoint, self.work, self.only)
        longer = longer_texts(self._tokenizer, self.rows)
        for entry in taking_part:
            entry.longer = longer if (mode, entry.contender.name) == (SCALED, "kit") else {}
            self._step(entry, "is prepared", self._prepare)
        for number in range(1, self.rounds + 1):
            for entry in _beginning_with(number - 1, taking_part):
                took = f"takes turn {number} of {self.rounds}, {mode}"
                self._step(entry, took, lambda each: each.take_turn(inputs, self.plan))
        return {
            "tokens": _described(lengths),
            "flops_per_row": cost,
            "lines": [asdict(line) for line in lines(taking_part, cost, self.peaks)],
            "starts": starts(taking_part),
            "scaling": [
                asdict(line)
                for entry in taking_part
                for line in scaling(entry.turns, longer, self._tokenizer)
            ],
            "contenders": {entry.contender.name: record(entry) for entry in taking_part},
        }

    def _step(self, entry: Entry, told: str, do: Callable[[Entry], object]) -> None:
        """Do something with a contender that is still in; put it out where that fails."""
        if entry.failure:
            return
        self.say(f"{entry.contender.name} {told}")
        try:
            do(entry)
        except KitError as error:
            entry.failure = str(error)
            self.say(f"{entry.contender.name} is out: {error}")

    def _prepare(self, entry: Entry) -> None:
        entry.prepare(self.work / "unpacked", checked=not self.tiny)

    def _checkpoint(self, mode: str) -> Path:
        size = "tiny" if self.tiny else "base"
        return bert_base(self.work / "models" / f"bert_{size}_{mode}", mode, tiny=self.tiny)

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        return load_tokenizer()

    def _lengths(self, inputs: Sequence[Any]) -> list[int]:
        """Return how many tokens each of a mode's inputs has."""
        pairs = [each if isinstance(each, str) else tuple(each.values()) for each in inputs]
        return [len(ids) for ids in self._tokenizer(pairs)["input_ids"]]


def _described(lengths: Sequence[int]) -> dict[str, float]:
    return {
        "least": min(lengths),
        "median": median(lengths),
        "mean": mean(lengths),
        "most": max(lengths),
    }


def _beginning_with(number: int, entries: Sequence[Entry]) -> list[Entry]:
    """Return entries in turn from another one each round: a machine may grow slower as it works."""
    first = number % len(entries) if entries else 0
    return [*entries[first:], *entries[:first]]
