"""The measures of a model on rows that it was not trained on. Nothing here imports torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

FILE = "score.json"


@dataclass(frozen=True)
class Score:
    """The measures of one model, each with its name, and on how many held-out rows."""

    mode: str
    seed: int
    rows: int
    measures: dict[str, float]

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.3g}" for name, value in self.measures.items())

    def write(self, folder: Path) -> None:
        """Write the score into the folder of a checkpoint."""
        text = json.dumps(asdict(self), indent=2)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Score | None:
        """Return the score in the folder of a checkpoint; None if there is none."""
        path = folder / FILE
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def mean(values: Iterable[float]) -> float:
    """Return the mean; of truth values it is the share of the true ones."""
    return fmean(map(float, values))


def f1(found: Sequence[Sequence[Hashable]], expected: Sequence[Sequence[Hashable]]) -> float:
    """Return the F1 of all rows' items together; only equal items count as found."""
    pairs = [(Counter(row), Counter(truth)) for row, truth in zip(found, expected, strict=True)]
    common = sum((row & truth).total() for row, truth in pairs)
    total = sum(row.total() + truth.total() for row, truth in pairs)
    return 2 * common / total if total else 1.0
