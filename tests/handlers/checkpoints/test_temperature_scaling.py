from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hf_serve.handlers.checkpoints.temperature_scaling import (
    FILE,
    CalibrationReport,
    temperature_of,
    with_temperature,
)
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from tests.sentences import refused


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def test_a_temperature_divides_the_logits() -> None:
    logits = np.array([2.0, -1.0, 0.5])
    assert with_temperature(softmax(logits).tolist(), 4.0) == pytest.approx(softmax(logits / 4))
    assert with_temperature([0.25, 0.75], 1.0) == [0.25, 0.75]
    assert with_temperature([0.0, 1.0], 2.0) == pytest.approx([0, 1])


def test_a_yaml_chooses_the_temperature(tmp_path: Path) -> None:
    def of(**keys: object) -> float:
        settings = HandlerSection.model_validate({"mode": "sequence_classification", **keys})
        return temperature_of(tmp_path, settings)

    measured = {"labelled": "rows.jsonl", "temperature": "measured"}
    assert (of(), of(temperature=2.5), of(**measured)) == (1.0, 2.5, 1.0)
    CalibrationReport(40, 0.9, 0.1, 1.75, 0.05).write(tmp_path)
    assert (of(), of(temperature=2.5), of(**measured)) == (1.0, 2.5, 1.75)
    (tmp_path / FILE).write_text("{")
    with refused(WrongCheckpoint, FILE):
        of(**measured)
