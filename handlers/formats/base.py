"""What every format declares about itself and does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from handlers.checkpoints.model_spec import ModelSpec
from handlers.config.handler_section import DType
from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig
from handlers.runtime.imports import require_package
from handlers.runtime.model import Model
from handlers.tasks.base import BaseTask


class BaseFormat(ABC):
    """How weights are stored and run; `handlers/formats/<save_mode>.py` has one class `Format`.

    Attributes:
        generates: whether its models generate text.
        lossy: whether it rounds in float32, too, so that every export is measured.
        dtypes: values of `handler.dtype` that it computes in, beside `auto`.
        quantizations: values of `handler.quantization` that it takes.
        calibrated: those of them that need calibration, which a generating task cannot have.
        takes_compile: whether a YAML may enable `pt2.compile`.
        takes_batch_size: whether a YAML may set `handler.batch_size`.
        fixed_shape: whether its graph takes one shape, of `batch_size` rows of `max_length` tokens.
        packages: how each package that it needs, beside torch and transformers, is installed.
    """

    generates: ClassVar[bool] = False
    lossy: ClassVar[bool] = False
    dtypes: ClassVar[tuple[DType, ...]] = ("float32", "bfloat16", "float16")
    quantizations: ClassVar[tuple[str, ...]] = ()
    calibrated: ClassVar[tuple[str, ...]] = ()
    takes_compile: ClassVar[bool] = False
    takes_batch_size: ClassVar[bool] = False
    fixed_shape: ClassVar[bool] = False
    packages: ClassVar[Mapping[str, str]] = {}

    @property
    def name(self) -> str:
        """The value of `save_mode`: the name of the format's file."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def load(self, spec: ModelSpec) -> Model:
        """Load a model that was stored in this format.

        Raises:
            ConfigError: its files cannot be loaded, or a package is missing.
        """

    def export(self, spec: ModelSpec, target: Path, inputs: tuple[str, ...]) -> None:
        """Write the checkpoint of a spec to a folder in this format, and compare the result with it.

        Args:
            spec: the checkpoint and the YAML.
            target: the folder.
            inputs: names of the model's inputs, the attention mask among them.

        Raises:
            ConfigError: the checkpoint cannot be exported, gives other answers, or a package is
                missing.
        """
        raise NotImplementedError

    def computes_in(self, dtype: str) -> str:
        """Return the dtype that a model computes in where its YAML says `dtype`."""
        return dtype if len(self.dtypes) > 1 else self.dtypes[0]

    def require(self, package: str, reason: str | None = None) -> Any:
        """Return the module of one of the format's packages.

        Args:
            package: a key of `packages`.
            reason: the setting that needs it, for the error; by default the `save_mode`.

        Raises:
            WrongConfig: it is not installed.
        """
        reason = reason or f"save_mode: {self.name}"
        return require_package(package, reason, self.packages[package])

    def check(self, config: ModelConfig, task: type[BaseTask[Any, Any]]) -> None:
        """Check that a task and the keys of a YAML go with this format.

        Raises:
            WrongConfig: they do not.
        """
        for problem in (
            self._task_problem(config, task),
            self._quantization_problem(config, task),
            self._dtype_problem(config),
            self._shape_problem(config),
            self._compile_problem(config),
        ):
            if problem:
                raise WrongConfig(config.source, *problem)

    def _task_problem(
        self, config: ModelConfig, task: type[BaseTask[Any, Any]]
    ) -> tuple[str, str] | None:
        if self.generates or not task.generates:
            return None
        return (
            f"handler.mode is {config.handler.mode} and handler.save_mode is {self.name}, which"
            " cannot generate",
            "use save_mode: openvino or pretrained",
        )

    def _quantization_problem(
        self, config: ModelConfig, task: type[BaseTask[Any, Any]]
    ) -> tuple[str, str] | None:
        wanted = config.handler.quantization
        if wanted is None:
            return None
        if wanted not in self.quantizations:
            return (
                f"handler.quantization is {wanted} and handler.save_mode is {self.name}",
                "use save_mode: openvino, or leave quantization out",
            )
        if wanted in self.calibrated and task.generates:
            others = [each for each in self.quantizations if each not in self.calibrated]
            return (
                f"handler.mode is {config.handler.mode}, which cannot be calibrated for"
                f" quantization: {wanted}",
                f"use {' or '.join(others)}",
            )
        return None

    def _dtype_problem(self, config: ModelConfig) -> tuple[str, str] | None:
        dtype = config.handler.dtype
        if dtype in (*self.dtypes, "auto"):
            return None
        return (
            f"handler.dtype is {dtype} and handler.save_mode is {self.name}, which computes in"
            f" {' or '.join(self.dtypes)}",
            "use save_mode: pretrained or openvino, or leave dtype out",
        )

    def _shape_problem(self, config: ModelConfig) -> tuple[str, str] | None:
        handler = config.handler
        if self.fixed_shape and handler.max_length is None:
            return (
                f"handler has save_mode: {self.name} and no max_length",
                "add max_length: 128, the one width that the graph is compiled for",
            )
        if handler.batch_size is None or self.takes_batch_size:
            return None
        return (
            f"handler.batch_size is {handler.batch_size} and handler.save_mode is {self.name}, which"
            " takes any number of rows",
            "use batchSize, TorchServe's own key, or leave it out",
        )

    def _compile_problem(self, config: ModelConfig) -> tuple[str, str] | None:
        if self.takes_compile or not config.pt2.compile.enable:
            return None
        return (
            f"pt2.compile is enabled and handler.save_mode is {self.name}, which torch does not"
            " compile",
            "use save_mode: pretrained, or leave pt2 out",
        )
