"""Measures the calibration of a model as it is served, on labelled questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..batching.rows import require_outputs
from ..checkpoints.temperature_scaling import (
    TINY,
    CalibrationReport,
    Probabilities,
    with_temperature,
)
from ..config.model_config import ModelConfig
from ..errors import RequestError, WrongConfig, attempt
from ..model import Model
from ..tasks.base import BaseTask
from ..telemetry.metrics import Meter
from ..types.decisions import LabelledQuestion
from ..types.request import Request
from .exporter import LoadModel, specify
from .fidelity import chunks

BINS = 15
# The range of temperatures, and how often it is made smaller.
LOWEST, HIGHEST, STEPS = 0.05, 20.0, 60
GOLDEN = (5**0.5 - 1) / 2
# The questions of one call of the task.
CHUNK = 32
# Fewer questions say little about probabilities.
MIN_QUESTIONS = 20


def measure_calibration(
    load: LoadModel,
    directory: Path,
    config: ModelConfig,
    target: Path,
    labelled: Sequence[LabelledQuestion],
) -> CalibrationReport:
    """Measure the calibration of a model on labelled questions, and write it to `target`.

    Args:
        load: loads the model.
        directory: the folder of the checkpoint.
        target: the folder of its export, which gets `calibration.json`.

    Raises:
        ConfigError: the mode answers no questions, there are too few of them, or one is refused.
    """
    task, spec = specify(directory, config)
    if not task.description.decides:
        raise WrongConfig(
            "handler.labelled",
            f"is set, and mode {config.handler.mode} answers no questions",
            "remove it",
        )
    if len(labelled) < MIN_QUESTIONS:
        raise WrongConfig(
            "handler.labelled",
            f"has {len(labelled)} questions, and calibration needs {MIN_QUESTIONS}",
            "add more",
        )
    model = load(replace(spec, directory=target) if config.handler.is_exported else spec)
    task.choose_batching(model)
    task.temperature = 1.0
    decisions = [each for part in chunks(labelled, CHUNK) for each in _decide(task, model, part)]
    report = report_of(decisions, [each.answer for each in labelled])
    report.write(target)
    return report


def _decide(
    task: BaseTask[Any, Any], model: Model, labelled: Sequence[LabelledQuestion]
) -> list[list[float]]:
    """Return the probabilities of the options of each question."""
    inputs = [_valid(each, attempt(task.parse, Request(each.question))) for each in labelled]
    rows = [_valid(each, own) for each, own in zip(labelled, task.encode(inputs), strict=True)]
    outputs = iter(require_outputs(task.run(model, [row for own in rows for row in own], Meter())))
    pairs = zip(inputs, rows, strict=True)
    return [task.decode(item, own, [next(outputs) for _ in own]) for item, own in pairs]


def _valid(labelled: LabelledQuestion, outcome: Any) -> Any:
    if isinstance(outcome, RequestError):
        reason = str(outcome).rstrip(".")
        raise WrongConfig(labelled.place, f"is refused ({reason})", "correct or remove this row")
    return outcome


def report_of(decisions: Sequence[Probabilities], answers: Sequence[int]) -> CalibrationReport:
    """Return the calibration of decisions, each with the number of the right option."""
    temperature = fit_temperature(decisions[::2], answers[::2])
    measured, right = decisions[1::2], answers[1::2]
    cooled = [with_temperature(each, temperature) for each in measured]
    hits = [int(np.argmax(each)) == answer for each, answer in zip(measured, right, strict=True)]
    return CalibrationReport(
        len(decisions),
        float(np.mean(hits)),
        expected_calibration_error(measured, right),
        temperature,
        expected_calibration_error(cooled, right),
    )


def expected_calibration_error(decisions: Sequence[Probabilities], answers: Sequence[int]) -> float:
    """Return the expected calibration error, over bins of equal width."""
    likeliest = np.array([max(each) for each in decisions])
    chosen = [int(np.argmax(each)) for each in decisions]
    right = np.array(chosen) == np.array(answers)
    bins = np.minimum((likeliest * BINS).astype(int), BINS - 1)
    shares = np.bincount(bins, minlength=BINS) / len(bins)
    return float(
        sum(
            shares[number] * abs(right[bins == number].mean() - likeliest[bins == number].mean())
            for number in np.unique(bins)
        )
    )


def fit_temperature(decisions: Sequence[Probabilities], answers: Sequence[int]) -> float:
    """Return the temperature under which the answers are most likely.

    The likelihood has one maximum, as it is concave in the inverse of the temperature.
    """
    logits, rows = _logits(decisions), np.arange(len(decisions))

    def surprise(inverse: float) -> float:
        scaled = logits * inverse
        return float((np.logaddexp.reduce(scaled, axis=1) - scaled[rows, list(answers)]).mean())

    low, high = -np.log(HIGHEST), -np.log(LOWEST)
    for _ in range(STEPS):
        first, second = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        if surprise(np.exp(first)) <= surprise(np.exp(second)):
            high = second
        else:
            low = first
    return float(np.exp(-(low + high) / 2))


def _logits(decisions: Sequence[Probabilities]) -> npt.NDArray[np.float64]:
    """Return a row of logits for each decision, of which some have fewer options than others."""
    logits = np.full((len(decisions), max(map(len, decisions))), -np.inf)
    for row, probabilities in zip(logits, decisions, strict=True):
        row[: len(probabilities)] = np.log(np.maximum(probabilities, TINY))
    return logits
