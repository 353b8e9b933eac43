"""How far the probabilities of decisions can be trusted, measured on labelled questions.

The expected calibration error is the mean difference between how likely a model says that its
answers are and how many of them are right. A temperature divides the logits of all options, so that
the order of the options stays.

Source: C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger, "On calibration of modern neural networks",
ICML 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..config.documents import PackedFacts
from ..config.handler_section import MEASURED, HandlerSection

FILE = "calibration.json"
# Less than any probability in float64 but 0.
TINY = 1e-300
Probabilities = Sequence[float]


@dataclass(frozen=True)
class CalibrationReport(PackedFacts):
    """The calibration of a model.

    Attributes:
        questions: how many questions were asked. The temperature is fitted on one half of them, and
            all else is measured on the other half.
        accuracy: the share of right answers.
        error: the expected calibration error without a temperature.
        temperature: the temperature with the highest likelihood.
        calibrated_error: the expected calibration error with this temperature.
    """

    file: ClassVar = FILE
    questions: int
    accuracy: float
    error: float
    temperature: float
    calibrated_error: float

    def __str__(self) -> str:
        return (
            f"answers {self.accuracy:.1%} of the labelled questions right; expected calibration"
            f" error {self.error:.3f}, and {self.calibrated_error:.3f} with temperature"
            f" {self.temperature:.2f} ({self.questions} questions, half of them for the"
            " temperature)"
        )


def temperature_of(folder: Path, settings: HandlerSection) -> float:
    """Return the temperature of a YAML's decisions; 1 for none, and where none was measured yet."""
    if settings.temperature != MEASURED:
        return float(settings.temperature or 1.0)
    path = folder / FILE
    return CalibrationReport.read(path).temperature if path.is_file() else 1.0


def with_temperature(probabilities: Probabilities, temperature: float) -> list[float]:
    """Return the probabilities of logits that are divided by a temperature."""
    if temperature == 1.0:
        return list(probabilities)
    scaled = [math.log(max(each, TINY)) / temperature for each in probabilities]
    weights = [math.exp(each - max(scaled)) for each in scaled]
    return [each / sum(weights) for each in weights]
