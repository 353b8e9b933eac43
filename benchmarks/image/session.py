"""Measure every contender in turn, for several rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.contenders.base import Contender
from benchmarks.contenders.kit import Kit, sources
from benchmarks.contenders.litserve_images import LitServeImages
from benchmarks.entry import Entry
from benchmarks.image.costs import MODE, image_costs
from benchmarks.image.models import vit_base
from benchmarks.image.pictures import photographs
from benchmarks.measurement import Plan
from benchmarks.session import rotated
from benchmarks.step import run_step
from benchmarks.summary import record, starts

IMAGES = 48
# LitServe in the dtype of most tutorials, and in that of this kit's default.
LITSERVE = {"litserve": "float32", "litserve_bfloat16": "bfloat16"}
NAMES = (*sources(MODE), *LITSERVE)


@dataclass
class Session:
    """A run of the benchmark of images.

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

    def measure(self) -> dict[str, Any]:
        """Measure the contenders; one that fails is left out of later rounds."""
        size = "tiny" if self.smoke else "base"
        checkpoint = vit_base(self.work / "models" / f"vit_{size}", tiny=self.smoke)
        images = photographs(IMAGES)
        costs = image_costs(checkpoint, images)
        entries = self._entries(checkpoint)
        for entry in entries:
            run_step(entry, "preparing", self._prepare, self.report)
        for number in range(1, self.rounds + 1):
            step = f"round {number} of {self.rounds}"
            for entry in rotated(entries, number - 1):
                run_step(entry, step, lambda each: each.measure(images, self.plan), self.report)
        return {
            "costs": asdict(costs),
            "contenders": {entry.contender.name: record(entry) for entry in entries},
            "starts": starts(entries),
        }

    def _entries(self, checkpoint: Path) -> list[Entry]:
        contenders: dict[str, Contender] = {
            name: Kit(name, source, checkpoint, self.work) for name, source in sources(MODE).items()
        }
        batch = Kit("kit", sources(MODE)["kit"], checkpoint, self.work).config.batchSize
        contenders |= {
            name: LitServeImages(name, checkpoint, self.work, precision, batch)
            for name, precision in LITSERVE.items()
        }
        return [Entry(contenders[name]) for name in NAMES if not self.only or name in self.only]

    def _prepare(self, entry: Entry) -> None:
        entry.prepare(self.work / "unpacked", checked=not self.smoke)
