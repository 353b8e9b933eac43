"""The agreement of an exported model with its checkpoint."""

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
REGRESSION_TOLERANCE = 0.05

Logits = npt.NDArray[Any]


@dataclass(frozen=True)
class ParityReport:
    """The comparison of two models on the same rows.

    Attributes:
        rows: the number of rows.
        decisions: the number of decisions: one for each text, token, or start and end of an answer.
        label_agreement: the share of equal decisions.
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
        """Write the report to the directory of the exported model."""
        text = json.dumps(asdict(self), indent=2) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ParityReport:
        """Read a report."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def compare_outputs(
    expected: Sequence[Outputs], found: Sequence[Outputs], *, independent: bool = False
) -> ParityReport:
    """Compare the outputs of two models for the same rows.

    A decision is the largest value in the last dimension of an output: labels, tokens of the
    vocabulary, or start and end tokens of an answer. A single logit is a regression and agrees
    within 5%.

    Args:
        expected: the outputs of the checkpoint for each row.
        found: the outputs of the exported model.
        independent: whether each label is a separate decision, as in multi-label classification.
    """
    pairs = [pair for both in zip(expected, found, strict=True) for pair in _pairs(*both)]
    equal = np.concatenate([_equal(*pair, independent) for pair in pairs])
    difference = max(_score_difference(*pair, independent) for pair in pairs)
    return ParityReport(len(expected), len(equal), float(equal.mean()), difference)


def _pairs(expected: Outputs, found: Outputs) -> list[tuple[Logits, Logits]]:
    return [(np.asarray(expected[name]), np.asarray(found[name])) for name in expected]


def _equal(expected: Logits, found: Logits, independent: bool) -> npt.NDArray[np.bool_]:
    """Return whether each decision is equal; NaN and infinite values agree with nothing."""
    if expected.shape[-1] == 1 and not independent:
        tolerance = REGRESSION_TOLERANCE * np.maximum(1, np.abs(expected))
        return (np.abs(expected - found) <= tolerance).ravel()
    if independent:
        return np.asarray(((expected > 0) == (found > 0)) & np.isfinite(found)).ravel()
    return np.asarray(
        (expected.argmax(-1) == found.argmax(-1)) & np.isfinite(found).all(-1)
    ).ravel()


def _score_difference(expected: Logits, found: Logits, independent: bool) -> float:
    scores = sigmoid if independent or expected.shape[-1] == 1 else softmax
    with np.errstate(invalid="ignore"):
        difference = float(np.abs(scores(expected) - scores(found)).max())
    return difference if np.isfinite(difference) else 1.0
