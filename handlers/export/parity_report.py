"""How well an exported model agrees with the checkpoint that it was made from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.batching.rows import Outputs
from handlers.tasks._activations import sigmoid, softmax

FILE = "quality.json"
CLOSE = 0.05

Logits = npt.NDArray[Any]


@dataclass(frozen=True)
class ParityReport:
    """What was measured when a model was exported.

    Attributes:
        rows: how many rows ran through both models.
        decisions: how many choices they made: one a text, a token, or an end of an answer.
        label_agreement: the share of decisions that both made alike.
        largest_score_difference: the largest difference of a probability.
    """

    rows: int
    decisions: int
    label_agreement: float
    largest_score_difference: float

    def __str__(self) -> str:
        return (
            f"agrees with the checkpoint on {self.label_agreement:.2%} of {self.decisions} labels"
            f" ({self.rows} rows), largest score difference {self.largest_score_difference:.3f}"
        )

    def write(self, folder: Path) -> None:
        """Lay the figures beside the exported model."""
        text = json.dumps(asdict(self), indent=2) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ParityReport:
        """Read the figures."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def compare_outputs(
    expected: Sequence[Outputs], found: Sequence[Outputs], *, independent: bool = False
) -> ParityReport:
    """Compare the outputs of two models for the same rows.

    Each output's last dimension is what is chosen from: labels, tokens of the vocabulary, or the
    tokens at which an answer may start or end. With `independent` labels each is a decision; a
    single logit without them is a number, and agrees within 5%.
    """
    pairs = [pair for both in zip(expected, found, strict=True) for pair in _pairs(*both)]
    same = np.concatenate([_same(one, two, independent) for one, two in pairs])
    worst = max(_difference(one, two, independent) for one, two in pairs)
    return ParityReport(len(expected), len(same), float(same.mean()), worst)


def _pairs(one: Outputs, two: Outputs) -> list[tuple[Logits, Logits]]:
    return [(np.asarray(one[name]), np.asarray(two[name])) for name in one]


def _same(one: Logits, two: Logits, independent: bool) -> npt.NDArray[np.bool_]:
    """Tell for each decision whether both models made it alike; without a number there is none."""
    if one.shape[-1] == 1 and not independent:
        return (np.abs(one - two) <= CLOSE * np.maximum(1, np.abs(one))).ravel()
    alike = (one > 0) == (two > 0) if independent else one.argmax(-1) == two.argmax(-1)
    finite = np.isfinite(two) if independent else np.isfinite(two).all(-1)
    return np.asarray(alike & finite).ravel()


def _difference(one: Logits, two: Logits, independent: bool) -> float:
    scores = sigmoid if independent or one.shape[-1] == 1 else softmax
    with np.errstate(invalid="ignore"):
        worst = float(np.abs(scores(one) - scores(two)).max())
    return worst if np.isfinite(worst) else 1.0
