"""The interface of formats, and the checks of a YAML against what a format supports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ..batching.rows import RowKind
from ..checkpoints.dtypes import name_of, pick_dtype, quantization_method
from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.probe_inputs import GraphInputs
from ..config.handler_section import CHECKPOINT, DType, EngineName, HandlerSection
from ..config.model_config import ModelConfig
from ..errors import WrongConfig
from ..export.manifest import ExportManifest
from ..generation.backends.base import GenerationBackend
from ..generation.batch_scheduler import BatchScheduler
from ..model import Model
from ..process.packages import is_installed, require_package

if TYPE_CHECKING:
    from ..tasks.base import BaseTask


@dataclass(frozen=True)
class FormatCapabilities:
    """What a format can do.

    Attributes:
        generates: the auto classes whose models generate text in it.
        is_lossy: whether outputs differ from the checkpoint even in float32, so that every export
            is evaluated.
        dtypes: the supported values of `handler.dtype`, in addition to `auto`.
        calibrated: quantizations that need calibration, which generating tasks do not support.
        engines: the supported values of `handler.engine`, which let sequences join a running batch.
        has_fixed_shape: whether a graph has a fixed shape of `batch_size` rows and `max_length`
            tokens.
        supports_compile: whether the YAML may enable `pt2.compile`.
        supports_batch_size: whether the YAML may set `handler.batch_size`.
        supports_assistant: whether it generates with a draft model, for `assistant_model`.
        supports_adapters: whether it runs LoRA adapters that are chosen for each request.
    """

    row_kinds: tuple[RowKind, ...] = ("tokens", "arrays")
    generates: tuple[str, ...] = ()
    is_lossy: bool = False
    dtypes: tuple[DType, ...] = ("float32", "bfloat16", "float16")
    quantizations: tuple[str, ...] = ()
    calibrated: tuple[str, ...] = ()
    engines: tuple[EngineName, ...] = ()
    has_fixed_shape: bool = False
    supports_compile: bool = False
    supports_batch_size: bool = False
    supports_assistant: bool = False
    supports_adapters: bool = False


class BaseFormat(ABC):
    """A storage and execution format; `handlers/formats/<save_mode>.py` has one class `Format`.

    Attributes:
        packages: the install command of each required package other than torch and transformers.
        generation_packages: the packages that only modes that generate texts require.
    """

    capabilities: ClassVar[FormatCapabilities] = FormatCapabilities()
    packages: ClassVar[Mapping[str, str]] = {}
    generation_packages: ClassVar[Sequence[str]] = ()

    @property
    def name(self) -> str:
        """The value of `save_mode`, which is the module name of the format."""
        return type(self).__module__.rpartition(".")[2]

    def missing_packages(self, task: type[BaseTask[Any, Any]]) -> list[str]:
        """Return the packages that a mode requires and that are not installed."""
        others = () if task.description.generation.texts else self.generation_packages
        return [name for name in self.packages if name not in others and not is_installed(name)]

    def check(self, config: ModelConfig, task: type[BaseTask[Any, Any]]) -> None:
        """Check that the format supports a task and the keys of a YAML.

        Raises:
            WrongConfig: a key or the task is not supported.
        """
        given = _Checked(self.name, self.capabilities, config, task)
        for check in CHECKS:
            if problem := check(given):
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
            model: the loaded model, after the trial of its batches.
        """
        if isinstance(model, GenerationBackend):
            return model
        handler = spec.config.handler
        return BatchScheduler(model, handler.max_num_seqs, handler.max_waiting)

    def export(self, spec: ModelSpec, target: Path, inputs: GraphInputs) -> None:
        """Export a checkpoint to this format, and check that the outputs are equal.

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

    def is_lossy(self, config: ModelConfig) -> bool:
        """Return whether outputs of an export differ from the checkpoint's in float32."""
        handler = config.handler
        is_reduced = self.computes_in(handler.dtype) != "float32"
        return self.capabilities.is_lossy or is_reduced or handler.quantization is not None

    def computes_in(self, dtype: str) -> str:
        """Return the dtype that a model computes in for a value of `handler.dtype`."""
        return dtype if len(self.capabilities.dtypes) > 1 else self.capabilities.dtypes[0]

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
            reason: the setting that requires it, for the error message; `save_mode` by default.

        Raises:
            WrongConfig: the package is not installed.
        """
        reason = reason or f"save_mode: {self.name}"
        return require_package(package, reason, self.packages[package])


# What is wrong, and what to do.
Problem = tuple[str, str]


@dataclass(frozen=True)
class _Checked:
    """A YAML whose keys are compared with its format and its task."""

    save_mode: str
    supported: FormatCapabilities
    config: ModelConfig
    task: type[BaseTask[Any, Any]]

    @property
    def handler(self) -> HandlerSection:
        return self.config.handler

    @property
    def generates(self) -> bool:
        return self.task.description.generation.texts

    @property
    def continues_prompts(self) -> bool:
        return self.generates and not self.task.description.generation.is_encoder_decoder


Check = Callable[[_Checked], Problem | None]
# Keys of what runs texts side by side.
STEP_KEYS = ("enable_prefix_caching", "enable_chunked_prefill", "max_num_batched_tokens")


def _check_task(given: _Checked) -> Problem | None:
    names = f"handler.mode is {given.handler.mode} and handler.save_mode is {given.save_mode}"
    description, row_kinds = given.task.description, given.supported.row_kinds
    if not (description.exports.supported or given.save_mode == CHECKPOINT):
        return f"{names}, and models of this mode are not exported", "use save_mode: pretrained"
    if description.rows.kind not in row_kinds:
        return (
            f"{names}, whose graphs take {' or '.join(row_kinds)}, not {description.rows.kind}",
            "use save_mode: pretrained or openvino",
        )
    if not given.generates or given.task.auto_class in given.supported.generates:
        return None
    remedy = "openvino or pretrained" if given.continues_prompts else "pretrained"
    return f"{names}, which cannot generate its texts", f"use save_mode: {remedy}"


def _check_quantization(given: _Checked) -> Problem | None:
    quantization, supported = given.handler.quantization, given.supported
    if quantization is None:
        return None
    if quantization not in supported.quantizations:
        return (
            f"handler.quantization is {quantization} and handler.save_mode is {given.save_mode}",
            "use save_mode: openvino, or leave quantization out",
        )
    if quantization in supported.calibrated and given.generates:
        others = [each for each in supported.quantizations if each not in supported.calibrated]
        return (
            f"handler.mode is {given.handler.mode}, which cannot be calibrated for"
            f" quantization: {quantization}",
            f"use {' or '.join(others)}",
        )
    return None


def _check_dtype(given: _Checked) -> Problem | None:
    dtype, dtypes = given.handler.dtype, given.supported.dtypes
    if dtype in (*dtypes, "auto"):
        return None
    return (
        f"handler.dtype is {dtype} and handler.save_mode is {given.save_mode}, which computes in"
        f" {' or '.join(dtypes)}",
        "use save_mode: pretrained or openvino, or leave dtype out",
    )


def _check_shape(given: _Checked) -> Problem | None:
    handler = given.handler
    if given.supported.has_fixed_shape and handler.max_length is None:
        return (
            f"handler has save_mode: {given.save_mode} and no max_length",
            "add max_length: 128, the one width that the graph is compiled for",
        )
    if handler.batch_size is None or given.supported.supports_batch_size:
        return None
    return (
        f"handler.batch_size is {handler.batch_size} and handler.save_mode is {given.save_mode}, "
        "which takes any number of rows",
        "use batchSize, TorchServe's own key, or leave it out",
    )


def _check_compile(given: _Checked) -> Problem | None:
    if given.supported.supports_compile or not given.config.pt2.compile.enable:
        return None
    return (
        f"pt2.compile is enabled and handler.save_mode is {given.save_mode}, which torch does not"
        " compile",
        "use save_mode: pretrained, or leave pt2 out",
    )


def _check_scheduling(given: _Checked) -> Problem | None:
    if not given.config.continuousBatching or given.generates:
        return None
    return (
        f"continuousBatching is true and handler.mode is {given.handler.mode}",
        "use a mode that generates texts, or leave continuousBatching out",
    )


def _check_engine(given: _Checked) -> Problem | None:
    engine = given.handler.engine
    if engine is None:
        return None
    if engine not in given.supported.engines or not given.continues_prompts:
        return (
            f"handler.engine is {engine}, handler.mode is {given.handler.mode} and"
            f" handler.save_mode is {given.save_mode}",
            "use mode: text_generation or image_text_to_text with save_mode: pretrained, or leave"
            " engine out",
        )
    if not given.config.continuousBatching:
        return (
            f"handler.engine is {engine} and continuousBatching is not true",
            "add continuousBatching: true, or leave engine out",
        )
    unused = next((name for name, value in _keys_of_torch(given).items() if value), None)
    if unused is None:
        return None
    return (
        f"handler.engine is {engine}, which does not use {unused}",
        f"leave {unused} out, or engine",
    )


def _keys_of_torch(given: _Checked) -> dict[str, Any]:
    """Return the values of the keys that only a model that torch runs uses."""
    handler = given.handler
    return {
        "torchrun": given.config.torchrun,
        "pt2.compile": given.config.pt2.compile.enable,
        "handler.adapters": handler.takes_adapters,
        "handler.device_map": handler.device_map,
        "handler.model_parallel": handler.model_parallel,
        "handler.allow_pickle": handler.allow_pickle,
        "handler.allow_random_head": handler.allow_random_head,
    }


def _check_step_keys(given: _Checked) -> Problem | None:
    """Check the keys of the cache and the steps of back ends that run texts side by side."""
    handler = given.handler
    key = next((name for name in STEP_KEYS if getattr(handler, name) is not None), None)
    if key is None:
        return None
    if not given.config.continuousBatching:
        return f"handler.{key} is set and continuousBatching is not true", _remedy(key)
    if not given.continues_prompts:
        return f"handler.{key} is set and handler.mode is {handler.mode}", _remedy(key)
    if handler.enable_chunked_prefill is not False:
        return None
    if given.save_mode == CHECKPOINT and not handler.engine:
        return (
            "handler.enable_chunked_prefill is false and handler.save_mode is pretrained, whose"
            " prompts are always read in parts",
            "use save_mode: openvino or engine: vllm, or leave enable_chunked_prefill out",
        )
    if handler.max_num_batched_tokens is None:
        return None
    return (
        "handler.max_num_batched_tokens is set and handler.enable_chunked_prefill is false, with"
        " which each prompt is read in one step",
        "leave one of them out",
    )


def _remedy(key: str) -> str:
    return f"use mode: text_generation with continuousBatching: true, or leave {key} out"


def _check_assistant(given: _Checked) -> Problem | None:
    if given.handler.assistant_model is None:
        return None
    obstacle = _obstacle(
        given,
        given.continues_prompts,
        given.supported.supports_assistant,
        {"device_map or model_parallel is set": given.handler.uses_device_map},
    )
    return (
        None
        if obstacle is None
        else (
            f"handler.assistant_model is set and {obstacle}, where no draft model can help",
            "use mode: text_generation with save_mode: pretrained, without continuousBatching,"
            " torchrun, model_parallel and device_map, or leave assistant_model out",
        )
    )


def _check_adapter(given: _Checked) -> Problem | None:
    if not given.handler.takes_adapters:
        return None
    obstacle = _obstacle(
        given,
        given.task.description.takes_adapters,
        given.supported.supports_adapters,
        {"pt2.compile is enabled": given.config.pt2.compile.enable},
    )
    return (
        None
        if obstacle is None
        else (
            f"handler.adapters is set and {obstacle}, where a request cannot choose an adapter",
            "use a mode whose requests have adapter_id with save_mode: pretrained alone, or merge"
            " one adapter into the checkpoint and leave adapters out",
        )
    )


def _obstacle(
    given: _Checked, has_mode: bool, is_supported: bool, others: Mapping[str, bool]
) -> str | None:
    """Return why a model is not run as the checkpoint alone; None where it is."""
    obstacles = {
        f"handler.mode is {given.handler.mode}": not has_mode,
        f"handler.save_mode is {given.save_mode}": not is_supported,
        **others,
        "continuousBatching is true": given.config.continuousBatching,
        "torchrun is set": given.config.torchrun is not None,
    }
    return next((name for name, applies in obstacles.items() if applies), None)


CHECKS: tuple[Check, ...] = (
    _check_task,
    _check_quantization,
    _check_dtype,
    _check_shape,
    _check_compile,
    _check_engine,
    _check_scheduling,
    _check_step_keys,
    _check_assistant,
    _check_adapter,
)
