"""Storage and execution formats: `<save_mode>.py` has one class `Format`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from .. import tasks
from ..config.handler_section import AUTO, CHECKPOINT
from ..config.model_config import ModelConfig
from ..errors import ConfigError, WrongConfig, summarize
from ..registry import FORMATS
from .auto import FILE as CHOICE_FILE
from .auto import VLLM, Choice, fastest, replacement, resolve_auto_dtype, with_vllm, without_export

if TYPE_CHECKING:
    from ..checkpoints.model_spec import ModelSpec
    from ..checkpoints.temperature_scaling import CalibrationReport
    from ..export.fidelity_report import FidelityReport
    from ..model import Model
    from ..types.decisions import LabelledQuestion
    from ..types.request import Request
    from .base import BaseFormat

__all__ = [
    "CHOICE_FILE",
    "Choice",
    "check_config",
    "choose",
    "describe_missing",
    "export",
    "find_problem",
    "get",
    "load_checkpoint",
    "plan",
    "resolve",
]

logger = logging.getLogger(__name__)

# Characters of an error in the reason of a choice.
MAX_PROBLEM = 300


def get(save_mode: str) -> BaseFormat:
    """Return the format of `handlers/formats/<save_mode>.py`."""
    instance: BaseFormat = FORMATS.load(save_mode)()
    return instance


def load_checkpoint(spec: ModelSpec) -> Model:
    """Load the checkpoint beside an exported model, and find out which rows may share a batch."""
    model, handler = get(CHECKPOINT).load(spec), spec.config.handler
    kind = tasks.get(handler.mode).for_checkpoint(spec.checkpoint)
    kind(spec.checkpoint, handler).choose_batching(model)
    return model


def check_config(config: ModelConfig) -> None:
    """Check that the mode, the format and the keys of a YAML are compatible.

    Raises:
        WrongConfig: they are not; the message names supported values.
    """
    config = plan(config)
    handler = config.handler
    particular = (
        handler.quantization
        or handler.responses
        or handler.assistant_model
        or handler.takes_adapters
        or handler.engine
        or config.continuousBatching
    )
    if not (handler.is_exported or particular):
        return  # A checkpoint as it is goes with every task and key: no need to import either.
    task = tasks.get(handler.mode)
    get(handler.save_mode).check(config, task)
    if handler.responses and task.description.wire.legacy_response is None:
        raise WrongConfig(
            config.source,
            f"handler has responses: legacy and mode: {handler.mode}, which the old example had"
            " not",
            "leave responses out",
        )


def choose(config: ModelConfig) -> Choice:
    """Return what `save_mode: auto` is for a model that is packed on this machine.

    It is the fastest format for the mode on the device that TorchServe gives to workers here, or
    the checkpoint itself where a key excludes that format or a package of it is not installed.
    """
    # This import loads torch, which check_config does not need.
    from ..checkpoints.placement import serving_device_type  # noqa: PLC0415

    choice = fastest(config.handler.mode, serving_device_type(config.deviceType))
    if problem := find_problem(config, choice.save_mode):
        return replacement(choice, problem)
    return with_vllm(choice) if _may_have_vllm(config, choice) else choice


def _may_have_vllm(config: ModelConfig, choice: Choice) -> bool:
    """Return whether vLLM runs the texts of a checkpoint where the YAML has no engine.

    It does on NVIDIA GPUs, where it is installed and no key excludes it. It does not where prompts
    have images, because the YAML does not tell the family of the model.
    """
    names_engine = "engine" in config.handler.model_fields_set
    if choice.device != "cuda" or choice.save_mode != CHECKPOINT or names_engine:
        return False
    if tasks.get(config.handler.mode).auto_class != "AutoModelForCausalLM":
        return False
    try:
        check_config(config.with_save_mode(CHECKPOINT, VLLM))
    except WrongConfig:
        return False
    return _is_installed(VLLM)


def _is_installed(package: str) -> bool:
    # This import loads transformers, which check_config does not need.
    from ..process.packages import is_installed  # noqa: PLC0415

    return is_installed(package)


def find_problem(config: ModelConfig, save_mode: str) -> str | None:
    """Return why a format is not possible for a YAML on this machine; None if it is."""
    if save_mode == CHECKPOINT:
        return None
    try:
        check_config(config.with_save_mode(save_mode))
    except WrongConfig as error:
        return error.problem
    return describe_missing(config.handler.mode, save_mode)


def describe_missing(mode: str, save_mode: str) -> str | None:
    """Return which packages of a format are not installed, with their commands; None for none."""
    own = get(save_mode)
    missing = own.missing_packages(tasks.get(mode))
    if not missing:
        return None
    verb = "is" if len(missing) == 1 else "are"
    commands = dict.fromkeys(own.packages[name] for name in missing)
    needed = [each for each in commands if not any(_includes(other, each) for other in commands)]
    return f"{' and '.join(missing)} {verb} not installed ({'; '.join(needed)})"


def _includes(command: str, other: str) -> bool:
    """Return whether a command installs more than another one."""
    return {*command.split()} > {*other.split()}


def plan(config: ModelConfig) -> ModelConfig:
    """Return the config of a model that is packed on this machine, with a format for `auto`."""
    if config.handler.save_mode != AUTO:
        return config
    choice = choose(config)
    return config.with_save_mode(choice.save_mode, choice.engine)


def resolve(config: ModelConfig, directory: Path, device: str) -> ModelConfig:
    """Return the config of a packed model, with the format that `auto` was when it was packed."""
    if config.handler.save_mode != AUTO:
        return config
    path = directory / CHOICE_FILE
    choice = Choice.read(path) if path.is_file() else without_export(device)
    choice.log(config.handler.mode, device)
    # A worker on another device, or in another environment, runs the texts itself.
    has_engine = device == choice.device and choice.engine and _is_installed(choice.engine)
    if choice.engine and not has_engine:
        logger.warning("engine: %s is not used, as this worker lacks it", choice.engine)
    return config.with_save_mode(choice.save_mode, choice.engine if has_engine else None)


def export(
    directory: Path, config: ModelConfig, target: Path, samples: Sequence[Request] = ()
) -> FidelityReport | None:
    """Export the checkpoint in a directory to the format of its YAML.

    A checkpoint that is served as it is is only measured, in the dtype of the YAML. With
    `save_mode: auto` a file names the format; it is the checkpoint itself if the export fails.

    Args:
        samples: representative requests for calibration and evaluation.

    Returns:
        The agreement with the checkpoint in float32; None if no precision is lost.

    Raises:
        ConfigError: the checkpoint is invalid or cannot be exported, or the agreement is too low.
    """
    if config.handler.save_mode == AUTO:
        return _export_fastest(directory, config, target, samples)
    return _export(directory, config, target, samples)


def calibrate(
    directory: Path, config: ModelConfig, target: Path, labelled: Sequence[LabelledQuestion]
) -> CalibrationReport:
    """Measure the calibration of decisions of a model after its export.

    Args:
        directory: the folder of the checkpoint.
        target: the folder of its export, which gets `calibration.json`.

    Raises:
        ConfigError: the mode answers no questions, or one of them is refused.
    """
    # This import loads torch, which check_config does not need.
    from ..export.exporter import measure_calibration  # noqa: PLC0415
    from ..export.fidelity_report import FidelityReport  # noqa: PLC0415

    config = resolve(config, target, "cpu")
    model_format, report = get(config.handler.save_mode), FidelityReport.find(target)

    def load(spec: ModelSpec) -> Model:
        return model_format.load(resolve_auto_dtype(spec, report))

    return measure_calibration(load, directory, config, target, labelled)


def _export_fastest(
    directory: Path, config: ModelConfig, target: Path, samples: Sequence[Request]
) -> FidelityReport | None:
    choice = choose(config)
    try:
        report = _export_apart(directory, config, choice, target, samples)
    except ConfigError as error:
        # Only an export can be quantized.
        if choice.save_mode == CHECKPOINT or config.handler.quantization:
            raise
        choice = replacement(choice, summarize(error, MAX_PROBLEM).rstrip("."))
        report = _export_apart(directory, config, choice, target, samples)
    choice.write(target)
    return report


def _export_apart(
    directory: Path, config: ModelConfig, choice: Choice, target: Path, samples: Sequence[Request]
) -> FidelityReport | None:
    """Export to a format, and leave no files if that fails."""
    with TemporaryDirectory(dir=target) as draft:
        chosen = config.with_save_mode(choice.save_mode, choice.engine)
        report = _export(directory, chosen, Path(draft), samples)
        for path in Path(draft).iterdir():
            path.replace(target / path.name)
    return report


def _export(
    directory: Path, config: ModelConfig, target: Path, samples: Sequence[Request]
) -> FidelityReport | None:
    # This import loads torch and transformers, which check_config does not need.
    from ..export.exporter import export_checkpoint, measure_checkpoint  # noqa: PLC0415

    check_config(config)
    load = get(CHECKPOINT).load
    if not config.handler.is_exported:
        return measure_checkpoint(load, directory, config, target, samples)
    return export_checkpoint(
        get(config.handler.save_mode), load, directory, config, target, samples
    )
