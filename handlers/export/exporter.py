"""Exports a checkpoint to the format of its YAML, and measures the agreement with float32.

On labelled questions, it measures the calibration of the model as it is served.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from .. import tasks
from ..batching.padding import Tensors
from ..batching.rows import require_outputs
from ..checkpoints.dtypes import (
    FLOAT32_ONLY,
    check_not_quantized,
    name_of,
    pick_dtype,
    quantization_method,
)
from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.probe_inputs import GraphInputs
from ..checkpoints.temperature_scaling import (
    TINY,
    CalibrationReport,
    Probabilities,
    with_temperature,
)
from ..config.handler_section import CHECKPOINT, Pt2
from ..config.model_config import ModelConfig
from ..errors import RequestError, TextTooLong, WrongCheckpoint, WrongConfig, attempt
from ..model import Model
from ..process.packages import silence_exporters, silence_libraries
from ..tasks.base import BaseTask
from ..telemetry.metrics import Meter
from ..types.decisions import LabelledQuestion
from ..types.request import Request, place_of
from .fidelity import PlacedRow, chunks, compare_cached_texts, compare_texts, compare_with_float32
from .fidelity_report import FidelityReport
from .manifest import ExportManifest

logger = logging.getLogger(__name__)

# How often a model that changes too many labels is exported again.
RETRIES = 2

SEED = 0
# NNCF averages activation ranges over batches, so small batches give better estimates.
CALIBRATION_BATCH_SIZE = 8

Outcome = TypeVar("Outcome")
LoadModel = Callable[[ModelSpec], Model]

# A large model takes as much memory again in float32, so one that generates is measured on request.
REQUESTS_MEASUREMENT = ("min_agreement", "calibration")


class ExportFormat(Protocol):
    """The part of a format that the exporter uses; `handlers.formats` is a layer above."""

    def is_lossy(self, config: ModelConfig) -> bool:
        """Return whether outputs of an export differ from the checkpoint's in float32."""

    def computes_in(self, dtype: str) -> str:
        """Return the dtype that a model computes in for a value of `handler.dtype`."""

    def export(self, spec: ModelSpec, target: Path, inputs: GraphInputs) -> None:
        """Export a checkpoint to a directory."""

    def load(self, spec: ModelSpec) -> Model:
        """Load a model of this format."""


def export_checkpoint(
    export_format: ExportFormat,
    load_reference: LoadModel,
    directory: Path,
    config: ModelConfig,
    target: Path,
    samples: Sequence[Request] = (),
) -> FidelityReport | None:
    """Export the checkpoint in a directory to the format of the YAML.

    An export is lossy if it is quantized, computes in another dtype than float32, or its format is
    lossy. It is measured on the samples; a quantized one is calibrated on one half of them and
    measured on the other. If too many labels change, it is exported again: in float32 for
    `dtype: auto`, and with more blocks of a quantized model in floating point. With
    `continuousBatching` every export is measured, and its texts are compared, too.

    Args:
        target: the output directory; a measured export includes `quality.json`.
        samples: representative requests; required for a lossy export.

    Returns:
        The agreement of a measured export with the checkpoint, None for other exports.

    Raises:
        ConfigError: the checkpoint is invalid or cannot be exported, or the agreement is below
            `handler.min_agreement`.
    """
    silence_libraries()
    task, spec = specify(directory, config)
    check_not_quantized(task.checkpoint.config, config.handler)
    is_lossy = export_format.is_lossy(config)
    if not (is_lossy or (config.continuousBatching and samples)):
        _export(export_format, task, spec, target)
        return None
    quantized = config.handler.quantization is not None and not task.description.generation.texts
    calibration, evaluation = split(samples) if quantized else ((), samples)
    # Packing may have set continuousBatching, so the kit's own samples need not fit the model.
    rows = encode(task, evaluation, skip_long=not is_lossy and config.handler.calibration is None)
    if quantized:
        batches = calibration_batches(task, encode(task, calibration))
        spec = replace(spec, calibration=batches)
    measure = _Measurement(task, load_reference, export_format.load, rows)

    def export_and_measure(spec: ModelSpec) -> FidelityReport:
        _export(export_format, task, spec, target)
        exported = replace(spec, directory=target)
        return measure(exported, spec, _dtype_of(export_format, exported))

    first = report = export_and_measure(spec)
    for _ in range(RETRIES):
        if _is_sufficient(report, config) or not (quantized or _may_use_float32(report, config)):
            break
        logger.warning("It is exported again more precisely: in %s it %s", report.dtype, report)
        spec = _more_precise(spec)
        report = export_and_measure(spec)
    rejected = first if first.dtype != report.dtype else None
    return _accept(replace(report, rejected=rejected), task, target)


def measure_checkpoint(
    load: LoadModel,
    directory: Path,
    config: ModelConfig,
    target: Path,
    samples: Sequence[Request] = (),
) -> FidelityReport | None:
    """Measure the agreement of a checkpoint in the dtype of its YAML with float32.

    `dtype: auto` is measured in bfloat16, which it is on most machines: torch computes it on every
    processor, and the archive may be served on another one. If the agreement is too low, the report
    says that the model is served in float32.

    Args:
        samples: representative requests; without any, nothing is measured.

    Returns:
        The agreement; None if there is nothing to measure, or it cannot be measured here.

    Raises:
        ConfigError: the checkpoint is invalid, or the agreement of a dtype that the YAML names is
            below the `handler.min_agreement` that it sets.
    """
    if config.handler.dtype == "float32" or not config.handler.min_agreement or not samples:
        return None
    silence_libraries()
    task, spec = specify(directory, config)
    if reason := _not_comparable(task, spec):
        logger.info("The agreement with float32 is not measured: %s", reason)
        return None
    rows = encode(task, samples)
    dtype = "bfloat16" if config.handler.dtype == "auto" else config.handler.dtype
    measure = _Measurement(task, load, load, rows)
    report = measure(_reference(spec).with_settings(dtype=dtype), spec, dtype)
    if not _is_sufficient(report, config) and _may_use_float32(report, config):
        logger.warning("dtype: auto is float32, because in %s the model %s", report.dtype, report)
        exact = FidelityReport(report.rows, report.decisions, 1.0, 0.0, dtype="float32")
        report = replace(exact, rejected=report)
    if "min_agreement" not in config.handler.model_fields_set:
        return _report(report, config, target)
    return _accept(report, task, target)


@dataclass(frozen=True)
class _Measurement:
    """Compares models with the checkpoint in float32 on the same rows."""

    task: BaseTask[Any, Any]
    load_reference: LoadModel
    load: LoadModel
    rows: Sequence[PlacedRow]

    def __call__(self, spec: ModelSpec, checkpoint: ModelSpec, dtype: str) -> FidelityReport:
        reference = self.load_reference(_reference(checkpoint))
        report = compare_with_float32(self.task, reference, self.load(_static(spec)), self.rows)
        if spec.config.continuousBatching:
            model = self.load(spec)
            texts = compare_texts(self.task, reference, model, self.rows)
            report = replace(report, generated=texts)
            if spec.config.handler.enable_prefix_caching:
                without = self.load(spec.with_settings(enable_prefix_caching=False))
                cached = compare_cached_texts(self.task, without, model, self.rows)
                report = replace(report, cached=cached)
        return replace(report, dtype=dtype)


def specify(directory: Path, config: ModelConfig) -> tuple[BaseTask[Any, Any], ModelSpec]:
    """Return the task and the specification of the model of a checkpoint, on the CPU."""
    task = tasks.load(directory, config.handler)
    spec = task.model_spec(directory, config, torch.device("cpu"))
    # Drafts change the speed only, and are not beside a checkpoint before it is packed.
    return task, spec.with_settings(assistant_model=None)


def _export(
    export_format: ExportFormat, task: BaseTask[Any, Any], spec: ModelSpec, target: Path
) -> None:
    with silence_exporters():
        export_format.export(spec, target, task.graph_inputs)


def _more_precise(spec: ModelSpec) -> ModelSpec:
    """Return a spec for an export with half as many changed labels, in float32 for `auto`."""
    exact = spec.in_float32() if spec.config.handler.dtype == "auto" else spec
    return exact.with_settings(min_agreement=(1 + spec.config.handler.min_agreement) / 2)


def _dtype_of(export_format: ExportFormat, spec: ModelSpec) -> str:
    """Return the dtype that an exported model computes in."""
    if recorded := ExportManifest.read(spec.directory, spec.outputs.required).dtype:
        return recorded
    dtype = export_format.computes_in(spec.config.handler.dtype)
    return name_of(pick_dtype(dtype, spec.device))


def _reference(spec: ModelSpec) -> ModelSpec:
    """Return the spec of the checkpoint itself in float32, run by torch without torch.compile."""
    exact = _static(
        spec.in_float32().with_settings(save_mode=CHECKPOINT, quantization=None, engine=None)
    )
    return replace(exact, config=exact.config.model_copy(update={"pt2": Pt2()}))


def _static(spec: ModelSpec) -> ModelSpec:
    """Return the spec of the same model without continuous batching."""
    return replace(spec, config=spec.config.model_copy(update={"continuousBatching": None}))


def _not_comparable(task: BaseTask[Any, Any], spec: ModelSpec) -> str | None:
    """Return why a checkpoint is not compared with its outputs in float32."""
    config = spec.config
    if task.description.generation.texts and config.handler.model_fields_set.isdisjoint(
        REQUESTS_MEASUREMENT
    ):
        return f"a model that generates is measured if the YAML sets {REQUESTS_MEASUREMENT[0]}"
    if not task.description.exports.one_forward:
        return "each of its results is made by several forwards"
    if not task.description.outputs.names:
        return "the model generates its answers"
    if method := quantization_method(spec.checkpoint.config):
        return f"the weights were quantized with {method}"
    if config.handler.dtype == "auto" and spec.checkpoint.config.model_type in FLOAT32_ONLY:
        return "dtype: auto is float32, the only one that its layers compute in"
    if config.torchrun or config.handler.uses_device_map:
        return "the model is distributed, so that it may not fit into the memory of this machine"
    if config.handler.allow_random_head:
        return "the head of the model is random"
    return None


def _is_sufficient(report: FidelityReport, config: ModelConfig) -> bool:
    return report.reaches(config.handler.min_agreement)


def _may_use_float32(report: FidelityReport, config: ModelConfig) -> bool:
    return config.handler.dtype == "auto" and report.dtype != "float32"


def _report(report: FidelityReport, config: ModelConfig, target: Path) -> FidelityReport:
    """Write the report of a checkpoint in the dtype of its YAML, whatever the agreement is."""
    if not _is_sufficient(report, config):
        logger.warning("In %s the model %s", report.dtype, report)
    report.write(target)
    return report


def _accept(report: FidelityReport, task: BaseTask[Any, Any], target: Path) -> FidelityReport:
    """Write the report.

    Raises:
        WrongCheckpoint: the agreement is below `handler.min_agreement`.
    """
    if not report.reaches(task.settings.min_agreement):
        raise refusal(report, task)
    report.write(target)
    return report


def split(samples: Sequence[Request]) -> tuple[Sequence[Request], Sequence[Request]]:
    """Split samples randomly into two halves; a single sample is in both."""
    shuffled = random.Random(SEED).sample(samples, len(samples))
    return shuffled[::2], shuffled[1::2] or shuffled


def encode(
    task: BaseTask[Any, Any], samples: Sequence[Request], *, skip_long: bool = False
) -> list[PlacedRow]:
    """Return the rows of all samples, or of the samples that are not too long for the model.

    Raises:
        WrongConfig: there are no samples, or one is not a valid request.
    """
    inputs = [_require_valid(sample, attempt(task.parse, sample)) for sample in samples]
    encoded = list(zip(samples, task.encode(inputs), strict=True)) if inputs else []
    if skip_long:
        encoded = [pair for pair in encoded if not isinstance(pair[1], TextTooLong)]
    if not encoded:
        raise WrongConfig(
            "handler.calibration",
            "has no rows for calibration and evaluation",
            "set it to a JSON lines file of requests",
        )
    return [
        PlacedRow(place_of(sample), row)
        for sample, outcome in encoded
        for row in _require_valid(sample, outcome)
    ]


def calibration_batches(task: BaseTask[Any, Any], rows: Sequence[PlacedRow]) -> list[Tensors]:
    """Return batches of the rows."""
    return [
        task.collate(group)
        for chunk in chunks(rows, CALIBRATION_BATCH_SIZE)
        for group in task.groups([each.row for each in chunk])
    ]


def _require_valid(sample: Request, outcome: Outcome | RequestError) -> Outcome:
    if isinstance(outcome, RequestError):
        reason = str(outcome).rstrip(".")
        raise WrongConfig(place_of(sample), f"is refused ({reason})", "correct or remove this row")
    return outcome


def refusal(report: FidelityReport, task: BaseTask[Any, Any]) -> WrongCheckpoint:
    """Return the error for a model whose agreement is below `handler.min_agreement`."""
    settings = task.settings
    changes = f"; the labels that differ most clearly: {report.describe_changes()}"
    return WrongCheckpoint(
        f"{settings.save_mode} model",
        f"{report}; handler.min_agreement is {settings.min_agreement:g}"
        f"{changes if report.changed else ''}",
        "use a more precise quantization or dtype, calibration rows that resemble production "
        "requests, or a lower min_agreement",
    )


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
