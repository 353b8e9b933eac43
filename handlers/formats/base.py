"""The interface of formats, and the checks of a YAML against what a format supports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from handlers.batching.rows import RowKind
from handlers.checkpoints.dtypes import name_of, pick_dtype, quantization_method
from handlers.checkpoints.graph_inputs import GraphInputs
from handlers.checkpoints.model_spec import ModelSpec
from handlers.config.handler_section import DType, EngineName
from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig
from handlers.export.manifest import ExportManifest
from handlers.generation.backends.base import GenerationBackend
from handlers.generation.batch_scheduler import BatchScheduler
from handlers.model import Model
from handlers.process.packages import is_installed, require_package

if TYPE_CHECKING:
    from handlers.tasks.base import BaseTask


class BaseFormat(ABC):
    """A storage and execution format; `handlers/formats/<save_mode>.py` has one class `Format`.

    Attributes:
        row_kinds: the kinds of rows that its models take.
        generates: the auto classes whose models generate text in it.
        lossy: whether outputs differ from the checkpoint even in float32, so that every export is
            evaluated.
        dtypes: the supported values of `handler.dtype`, in addition to `auto`.
        quantizations: the supported values of `handler.quantization`.
        calibrated: quantizations that need calibration, which generating tasks do not support.
        takes_compile: whether the YAML may enable `pt2.compile`.
        takes_batch_size: whether the YAML may set `handler.batch_size`.
        engines: the supported values of `handler.engine`, which let texts join a running batch.
        assists: whether it generates with a draft model, for `assistant_model`.
        takes_adapters: whether it runs LoRA adapters that are chosen for each request.
        fixed_shape: whether a graph has a fixed shape of `batch_size` rows and `max_length` tokens.
        packages: the install command of each required package other than torch and transformers.
    """

    row_kinds: ClassVar[tuple[RowKind, ...]] = ("tokens", "arrays")
    generates: ClassVar[tuple[str, ...]] = ()
    lossy: ClassVar[bool] = False
    dtypes: ClassVar[tuple[DType, ...]] = ("float32", "bfloat16", "float16")
    quantizations: ClassVar[tuple[str, ...]] = ()
    calibrated: ClassVar[tuple[str, ...]] = ()
    takes_compile: ClassVar[bool] = False
    takes_batch_size: ClassVar[bool] = False
    engines: ClassVar[tuple[EngineName, ...]] = ()
    assists: ClassVar[bool] = False
    takes_adapters: ClassVar[bool] = False
    fixed_shape: ClassVar[bool] = False
    packages: ClassVar[Mapping[str, str]] = {}

    @property
    def name(self) -> str:
        """The value of `save_mode`, which is the module name of the format."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def missing_packages(self) -> list[str]:
        """The required packages that are not installed."""
        return [package for package in self.packages if not is_installed(package)]

    def check(self, config: ModelConfig, task: type[BaseTask[Any, Any]]) -> None:
        """Check that the format supports a task and the keys of a YAML.

        Raises:
            WrongConfig: a key or the task is not supported.
        """
        for check in CHECKS:
            if problem := check(self, config, task):
                raise WrongConfig(config.source, *problem)

    @abstractmethod
    def load(self, spec: ModelSpec) -> Model:
        """Load a model of this format.

        Raises:
            ConfigError: the files cannot be loaded, or a package is missing.
        """

    def run_continuously(self, spec: ModelSpec, model: Model) -> Model:
        """Return a model that answers each text when it ends, for `continuousBatching`.

        Args:
            spec: the model to load.
            model: the loaded model, after the trial of its batches.
        """
        if isinstance(model, GenerationBackend):
            return model
        handler = spec.config.handler
        return BatchScheduler(model, handler.max_num_seqs, handler.max_waiting)

    def export(self, spec: ModelSpec, target: Path, inputs: GraphInputs) -> None:
        """Export a checkpoint to this format, and check that the outputs are equal.

        Args:
            spec: the checkpoint and the YAML.
            target: the output directory.
            inputs: what the graph takes.

        Raises:
            ConfigError: the checkpoint cannot be exported, the outputs differ, or a package is
                missing.
        """
        raise NotImplementedError

    def needs_weights(self, config: ModelConfig) -> bool:
        """Return whether an archive has the weights of the checkpoint, here for explanations."""
        handler = config.handler
        return handler.captum_explanation and handler.explain_with_checkpoint

    def explained_checkpoint(self, spec: ModelSpec) -> ModelSpec | None:
        """Return the checkpoint that explanations run in place of an exported model.

        Returns:
            None if they run the model itself, which with `continuousBatching` loads the checkpoint
            where it needs it.
        """
        config = spec.config
        own = not config.handler.is_exported or config.continuousBatching
        if own or not (self.needs_weights(config) and spec.has_weights):
            return None
        return spec.of_checkpoint(self.served_dtype(spec))

    def computes_in(self, dtype: str) -> str:
        """Return the dtype that a model computes in for a value of `handler.dtype`."""
        return dtype if len(self.dtypes) > 1 else self.dtypes[0]

    def served_dtype(self, spec: ModelSpec) -> str:
        """Return the dtype that a loaded model computes in on this machine."""
        if quantization_method(spec.checkpoint.config):
            return name_of(spec.checkpoint.config.dtype or torch.float32)
        recorded = ExportManifest.read(spec.directory, spec.outputs.required).dtype
        dtype = recorded or self.computes_in(spec.config.handler.dtype)
        return name_of(pick_dtype(dtype, spec.device))

    def require(self, package: str, reason: str | None = None) -> Any:
        """Import one of the packages of the format.

        Args:
            package: a key of `packages`.
            reason: the setting that requires it, for the error message; `save_mode` by default.

        Raises:
            WrongConfig: the package is not installed.
        """
        reason = reason or f"save_mode: {self.name}"
        return require_package(package, reason, self.packages[package])


# What is wrong, and what to do.
Problem = tuple[str, str]
Check = Callable[[BaseFormat, ModelConfig, "type[BaseTask[Any, Any]]"], Problem | None]


def _check_task(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    if not (task.description.exports.supported or model_format.name == "pretrained"):
        return (
            f"handler.mode is {config.handler.mode} and handler.save_mode is {model_format.name},"
            " and models of this mode are not exported",
            "use save_mode: pretrained",
        )
    if task.description.rows.kind not in model_format.row_kinds:
        return (
            f"handler.mode is {config.handler.mode} and handler.save_mode is {model_format.name},"
            f" whose graphs take {' or '.join(model_format.row_kinds)}, not"
            f" {task.description.rows.kind}",
            "use save_mode: pretrained or openvino",
        )
    if not task.description.generation.texts or task.auto_class in model_format.generates:
        return None
    has_encoder = task.description.generation.is_encoder_decoder
    remedy = "pretrained" if has_encoder else "openvino or pretrained"
    return (
        f"handler.mode is {config.handler.mode} and handler.save_mode is {model_format.name}, which"
        " cannot generate its texts",
        f"use save_mode: {remedy}",
    )


def _check_quantization(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    quantization = config.handler.quantization
    if quantization is None:
        return None
    if quantization not in model_format.quantizations:
        return (
            f"handler.quantization is {quantization} and handler.save_mode is {model_format.name}",
            "use save_mode: openvino, or leave quantization out",
        )
    if quantization in model_format.calibrated and task.description.generation.texts:
        others = [
            each for each in model_format.quantizations if each not in model_format.calibrated
        ]
        return (
            f"handler.mode is {config.handler.mode}, which cannot be calibrated for"
            f" quantization: {quantization}",
            f"use {' or '.join(others)}",
        )
    return None


def _check_dtype(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    dtype = config.handler.dtype
    if dtype in (*model_format.dtypes, "auto"):
        return None
    return (
        f"handler.dtype is {dtype} and handler.save_mode is {model_format.name}, which computes in"
        f" {' or '.join(model_format.dtypes)}",
        "use save_mode: pretrained or openvino, or leave dtype out",
    )


def _check_shape(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    handler = config.handler
    if model_format.fixed_shape and handler.max_length is None:
        return (
            f"handler has save_mode: {model_format.name} and no max_length",
            "add max_length: 128, the one width that the graph is compiled for",
        )
    if handler.batch_size is None or model_format.takes_batch_size:
        return None
    return (
        f"handler.batch_size is {handler.batch_size} and handler.save_mode is {model_format.name}, "
        "which takes any number of rows",
        "use batchSize, TorchServe's own key, or leave it out",
    )


def _check_compile(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    if model_format.takes_compile or not config.pt2.compile.enable:
        return None
    return (
        f"pt2.compile is enabled and handler.save_mode is {model_format.name}, which torch does not"
        " compile",
        "use save_mode: pretrained, or leave pt2 out",
    )


def _check_scheduling(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    if not config.continuousBatching or task.description.generation.texts:
        return None
    return (
        f"continuousBatching is true and handler.mode is {config.handler.mode}",
        "use a mode that generates texts, or leave continuousBatching out",
    )


def _check_engine(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    engine = config.handler.engine
    if engine is None:
        return None
    if engine not in model_format.engines or not _continues_prompts(task):
        return (
            f"handler.engine is {engine}, handler.mode is {config.handler.mode} and"
            f" handler.save_mode is {model_format.name}",
            "use mode: text_generation with save_mode: pretrained, or leave engine out",
        )
    if not config.continuousBatching:
        return (
            f"handler.engine is {engine} and continuousBatching is not true",
            "add continuousBatching: true, or leave engine out",
        )
    chosen = [name for name, value in _not_of_engines(config).items() if value]
    if chosen:
        return (
            f"handler.engine is {engine}, which does not use {chosen[0]}",
            f"leave {chosen[0]} out, or engine",
        )
    return None


def _check_assistant(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    handler = config.handler
    if handler.assistant_model is None:
        return None
    obstacles = {
        f"handler.mode is {handler.mode}": not _continues_prompts(task),
        f"handler.save_mode is {model_format.name}": not model_format.assists,
        "continuousBatching is true": config.continuousBatching,
        "torchrun is set": config.torchrun is not None,
        "device_map or model_parallel is set": handler.uses_device_map,
    }
    obstacle = next((name for name, applies in obstacles.items() if applies), None)
    if obstacle is None:
        return None
    return (
        f"handler.assistant_model is set and {obstacle}, where no draft model can help",
        "use mode: text_generation with save_mode: pretrained, without continuousBatching,"
        " torchrun, model_parallel and device_map, or leave assistant_model out",
    )


def _check_adapter(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    if not config.handler.adapters:
        return None
    obstacles = {
        f"handler.mode is {config.handler.mode}": not _continues_prompts(task),
        f"handler.save_mode is {model_format.name}": not model_format.takes_adapters,
        "pt2.compile is enabled": config.pt2.compile.enable,
        "continuousBatching is true": config.continuousBatching,
        "torchrun is set": config.torchrun is not None,
    }
    obstacle = next((name for name, applies in obstacles.items() if applies), None)
    if obstacle is None:
        return None
    return (
        f"handler.adapters is set and {obstacle}, where a request cannot choose an adapter",
        "use mode: text_generation with save_mode: pretrained alone, or merge one adapter into"
        " the checkpoint and leave adapters out",
    )


def _continues_prompts(task: type[BaseTask[Any, Any]]) -> bool:
    return task.description.generation.texts and not task.description.generation.is_encoder_decoder


def _not_of_engines(config: ModelConfig) -> dict[str, Any]:
    """Return the values of the keys that concern the model that torch runs."""
    handler = config.handler
    return {
        "torchrun": config.torchrun,
        "pt2.compile": config.pt2.compile.enable,
        "handler.adapters": handler.adapters,
        "handler.device_map": handler.device_map,
        "handler.model_parallel": handler.model_parallel,
        "handler.allow_pickle": handler.allow_pickle,
        "handler.allow_random_head": handler.allow_random_head,
    }


CHECKS: tuple[Check, ...] = (
    _check_task,
    _check_quantization,
    _check_dtype,
    _check_shape,
    _check_compile,
    _check_engine,
    _check_scheduling,
    _check_assistant,
    _check_adapter,
)
