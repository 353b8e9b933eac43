"""How well an exported model agrees with the checkpoint that it was made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from handlers.activations import softmax
from handlers.rows import Outputs

FILE = "quality.json"


@dataclass(frozen=True)
class Agreement:
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
    def read(cls, path: Path) -> Agreement:
        """Read the figures."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def agreement(expected: Sequence[Outputs], found: Sequence[Outputs]) -> Agreement:
    """Compare the outputs of two models for the same rows.

    Each output's last dimension is what is chosen from: labels, tokens of the vocabulary, or the
    tokens at which an answer may start or end.
    """
    pairs = [pair for both in zip(expected, found, strict=True) for pair in _pairs(*both)]
    same = np.concatenate([one.argmax(-1).ravel() == two.argmax(-1).ravel() for one, two in pairs])
    worst = max(float(np.abs(softmax(one) - softmax(two)).max()) for one, two in pairs)
    return Agreement(len(expected), len(same), float(same.mean()), worst)


def _pairs(one: Outputs, two: Mapping[str, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(one[name], two[name]) for name in one]
