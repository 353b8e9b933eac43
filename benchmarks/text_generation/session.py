"""Run the benchmark of text generation: every contender of a model in each round."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from benchmarks.contenders.kit import Kit
from benchmarks.session import rotated
from benchmarks.step import run_step
from benchmarks.text_generation.contender import GenerationContender, Job, Plan, Turn
from benchmarks.text_generation.engines import engines
from benchmarks.text_generation.models import language_model
from benchmarks.text_generation.server import KitServer, StreamingKitServer
from benchmarks.text_generation.summary import summary
from benchmarks.text_generation.workloads import LONGEST_TEXT

NAMES = (
    "kit",
    "kit_streamed",
    "transformers_static",
    "transformers_single",
    "openvino_genai",
    "vllm",
    "vllm_all_cores",
)


@dataclass
class Entry:
    """A contender with its results.

    Attributes:
        contender: the server or engine.
        turns: one result per round.
        failure: the error message, if it failed.
    """

    contender: GenerationContender
    turns: list[Turn] = field(default_factory=list)
    failure: str | None = None


@dataclass
class Session:
    """A benchmark run.

    Attributes:
        work: folder for models, archives and logs.
        plan: what is measured.
        rounds: number of measurements of each contender.
        only: names of the contenders; empty for all.
        source: the YAML file of this kit's model, whose checkpoint is replaced.
        tiny: whether to use tiny models, for a trial run.
        report: called with a message for each step.
    """

    work: Path
    plan: Plan
    rounds: int
    only: Collection[str]
    source: Path
    tiny: bool
    report: Callable[[str], None]

    def measure(self, model: str) -> dict[str, Any]:
        """Measure the contenders of a model; one that fails is excluded and the others continue."""
        size = "tiny" if self.tiny else "base"
        checkpoint = language_model(self.work / "models" / f"{model}_{size}", model, tiny=self.tiny)
        vocabulary = AutoConfig.from_pretrained(checkpoint).vocab_size
        job = Job(model, checkpoint, vocabulary, self.plan)
        entries = [Entry(each) for each in self.contenders(job, self.work / f"{model}_{size}")]
        for entry in entries:
            run_step(
                entry, f"{model}, preparing", lambda each: each.contender.prepare(), self.report
            )
        for number in range(self.rounds):
            step = f"{model}, round {number + 1} of {self.rounds}"
            for entry in rotated(entries, number):
                run_step(
                    entry,
                    step,
                    lambda each: each.turns.append(each.contender.measure(job)),
                    self.report,
                )
        return summary(entries)

    def contenders(self, job: Job, work: Path) -> list[GenerationContender]:
        """Return the selected contenders of a model; `work` is a folder of this model."""
        kit = Kit("kit", self.source, job.checkpoint, work, max_total_tokens=LONGEST_TEXT)
        others = engines(job.checkpoint, work, job.plan.clients)
        found: list[GenerationContender] = [KitServer(kit), StreamingKitServer(kit), *others]
        return [each for each in found if not self.only or each.name in self.only]
