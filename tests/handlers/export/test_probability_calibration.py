from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers import formats
from hf_serve.handlers.checkpoints.temperature_scaling import (
    FILE,
    CalibrationReport,
    with_temperature,
)
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.export.exporter import expected_calibration_error, fit_temperature, report_of
from hf_serve.handlers.types.decisions import LabelledQuestion, Option, Question
from hf_serve.handlers.types.request import Request
from tests.modes import cases
from tests.samples import FINE, ODD
from tests.sentences import refused
from tests.serving import Served

MODE = "sequence_classification"
OPTIONS = [Option(label) for label in cases(MODE).labels]


def labelled(count: int, options: list[Option] | None = None) -> list[LabelledQuestion]:
    """Return questions about different texts, whose answers repeat in order."""
    options = options or OPTIONS
    return [
        LabelledQuestion(
            Question("choice", f"{FINE if number % 2 else ODD} {number}", "Which?", options),
            number % 3,
            f"rows.jsonl, line {number}",
        )
        for number in range(count)
    ]


def config_of(mode: str = MODE, **handler: object) -> ModelConfig:
    return ModelConfig.parse({"handler": {"mode": mode, "dtype": "float32", **handler}})


def test_a_model_is_measured_as_it_is_served(
    checkpoint: Callable[..., Path], served: Callable[..., Served], tmp_path: Path
) -> None:
    rows = labelled(24)
    # A temperature that the YAML sets has no effect on the measurement.
    config = config_of(temperature=9.0)
    report = formats.calibrate(checkpoint(MODE), config, tmp_path, rows)
    decisions: Any = served(MODE).engine.predict([Request(each.question) for each in rows])
    expected = report_of(decisions, [each.answer for each in rows])
    assert report.questions == 24
    assert report.accuracy == expected.accuracy
    assert report.error == pytest.approx(expected.error, abs=1e-4)
    assert report.temperature == pytest.approx(expected.temperature, rel=1e-3)
    assert CalibrationReport.read(tmp_path / FILE) == report


@pytest.mark.parametrize("mode", [MODE, "zero_shot_classification"])
def test_decisions_have_the_temperature_of_the_yaml(
    served: Callable[..., Served], mode: str
) -> None:
    choice = Question("choice", FINE, "Which?", OPTIONS)
    predicate = Question("predicate", FINE, "POSITIVE")
    requests = [Request(choice), Request(predicate)]
    plain: Any = served(mode).engine.predict(requests)
    found = served(mode, temperature=3.0).engine.predict(requests)
    for own, cooled in zip(plain, found, strict=True):
        assert cooled == pytest.approx(with_temperature(own, 3.0), abs=1e-5)


def test_what_cannot_be_measured_is_refused(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    with refused(WrongConfig, "handler.labelled", 5, 20):
        formats.calibrate(checkpoint(MODE), config_of(), tmp_path, labelled(5))
    unknown = labelled(20, [Option("rain"), Option("sun"), Option("snow")])
    with refused(WrongConfig, "rows.jsonl, line 0", "rain"):
        formats.calibrate(checkpoint(MODE), config_of(), tmp_path, unknown)
    mode = "sentence_embedding"
    with refused(WrongConfig, "handler.labelled", mode):
        formats.calibrate(checkpoint(mode), config_of(mode), tmp_path, labelled(20))


def test_a_temperature_that_was_not_measured_is_refused(checkpoint: Callable[..., Path]) -> None:
    with refused(WrongConfig, "handler.temperature", FILE):
        Served(checkpoint(MODE), MODE, labelled="rows.jsonl", temperature="measured")


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def test_the_error_is_the_mean_difference_of_the_bins() -> None:
    decisions = [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.3, 0.7]]
    answers = [0, 0, 0, 1, 1, 0]
    expected = 4 / 6 * abs(0.75 - 0.9) + 2 / 6 * abs(0.5 - 0.7)
    assert expected_calibration_error(decisions, answers) == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_of_the_answers_is_found(temperature: float) -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 3, (4000, 4))
    truth = softmax(logits / temperature)
    answers = [int(generator.choice(4, p=row)) for row in truth]
    decisions = softmax(logits).tolist()
    assert fit_temperature(decisions, answers) == pytest.approx(temperature, rel=0.1)
    report = report_of(decisions, answers)
    assert report.questions == 4000 and report.temperature == pytest.approx(temperature, rel=0.1)
    assert report.calibrated_error < 0.03
    assert temperature == 1.0 or report.error > report.calibrated_error


def test_questions_may_have_different_numbers_of_options() -> None:
    decisions = [[0.9, 0.1], [0.6, 0.3, 0.1], [0.2, 0.8], [0.25, 0.25, 0.5]]
    assert 0.05 < fit_temperature(decisions, [0, 1, 1, 2]) < 20
