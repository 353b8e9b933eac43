"""The interface of formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from handlers.batching.rows import RowKind
from handlers.checkpoints.dtypes import name_of, pick_dtype, quantization_method
from handlers.checkpoints.graph_inputs import GraphInputs
from handlers.checkpoints.model_spec import ModelSpec
from handlers.config.handler_section import DType, EngineName
from handlers.config.model_config import ModelConfig
from handlers.export.manifest import ExportManifest
from handlers.generation.backends.base import GenerationBackend
from handlers.generation.batch_scheduler import BatchScheduler
from handlers.model import Model
from handlers.process.packages import is_installed, require_package


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
