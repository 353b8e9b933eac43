"""Measure every contender with a model in turn, for several rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.contenders.base import Contender
from benchmarks.contenders.embedding_kit import EmbeddingKit, embedding_sources
from benchmarks.contenders.infinity import Infinity
from benchmarks.embedding.library import BACKENDS, measure_library
from benchmarks.embedding.models import MODELS, tiny
from benchmarks.entry import Entry
from benchmarks.measurement import Plan
from benchmarks.session import rotated
from benchmarks.step import run_step
from benchmarks.summary import record, starts
from benchmarks.texts import mixed_texts
from hf_serve.demo_models.minilm import load_tokenizer
from hf_serve.handlers.errors import KitError

SERVERS = ("kit", "kit_float32", "kit_openvino_int8", "infinity")
LIBRARIES = {f"sentence_transformers_{backend}": backend for backend in BACKENDS}
NAMES = (*SERVERS, *LIBRARIES)
TEXTS = 256


@dataclass
class Session:
    """A run of the benchmark of embeddings.

    Attributes:
        work: folder for models, archives and logs.
        plan: numbers of clients and durations.
        rounds: number of measurements of each contender.
        only: names of the contenders; empty for all.
        smoke: whether to use a tiny model, for a trial run.
        report: called with a message for each step.
    """

    work: Path
    plan: Plan
    rounds: int
    only: Sequence[str]
    smoke: bool
    report: Callable[[str], None]

    def measure(self, model: str) -> dict[str, Any]:
        """Measure the contenders with a model; one that fails is left out of later rounds."""
        checkpoint = tiny(self.work) if self.smoke else MODELS[model](self.work)
        texts = mixed_texts(load_tokenizer(), TEXTS)
        entries = self._entries(checkpoint, model)
        libraries: dict[str, Any] = {
            name: {"rows_per_second": [], "failure": None}
            for name in LIBRARIES
            if self._selected(name)
        }
        for entry in entries:
            run_step(entry, f"{model}, preparing", self._prepare, self.report)
        for number in range(1, self.rounds + 1):
            step = f"{model}, round {number} of {self.rounds}"
            for entry in rotated(entries, number - 1):
                run_step(entry, step, lambda each: each.measure(texts, self.plan), self.report)
            for name, found in libraries.items():
                self._measure_library(name, found, step, checkpoint, texts)
        return {
            "contenders": {entry.contender.name: record(entry) for entry in entries},
            "agreement": {
                entry.contender.name: asdict(entry.archive.quality.vectors)
                for entry in entries
                if entry.archive and entry.archive.quality and entry.archive.quality.vectors
            },
            "starts": starts(entries),
            "libraries": libraries,
        }

    def _entries(self, checkpoint: Path, model: str) -> list[Entry]:
        work = self.work / model
        contenders: dict[str, Contender] = {
            name: EmbeddingKit(name, source, checkpoint, work)
            for name, source in embedding_sources(work).items()
        }
        contenders["infinity"] = Infinity(checkpoint, work)
        return [Entry(contenders[name]) for name in SERVERS if self._selected(name)]

    def _selected(self, name: str) -> bool:
        return not self.only or name in self.only

    def _prepare(self, entry: Entry) -> None:
        entry.prepare(self.work / "unpacked", checked=not self.smoke)

    def _measure_library(
        self, name: str, found: dict[str, Any], step: str, checkpoint: Path, texts: Sequence[str]
    ) -> None:
        if found["failure"]:
            return
        self.report(f"{name}: {step}")
        try:
            speed = measure_library(LIBRARIES[name], checkpoint, texts, self.plan.seconds)
        except KitError as error:
            found["failure"] = str(error)
            self.report(f"{name} failed: {error}")
        else:
            found["rows_per_second"].append(speed)
