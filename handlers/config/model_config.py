"""The schema of model-config.yaml.

The download, packaging and load steps all read the file with :meth:`ModelConfig.read`, so each of
them reports a mistake with the same message. TorchServe ignores unknown keys and values of the
wrong type; this schema rejects both. Source of TorchServe's keys: its `ModelConfig.java`, 0.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    PrivateAttr,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)

from ..errors import WrongConfig, summarize
from .documents import parse_yaml, repeated_key
from .handler_section import CUSTOM_MODE, HandlerSection, Pt2
from .messages import describe_validation_error

CONFIG_FILE = "model-config.yaml"
# `off` in the environment has models that compile nothing serve cold: a request waits for the load.
WARM_UP = "WARM_UP"
# Of the time that is left; the rest is for the last forward pass and for writing answers.
COMPUTING_SHARE = 0.8
# TorchServe ignores what is no `Integer` of Java, with a warning in its log.
MAX_INTEGER = 2**31 - 1


class Torchrun(BaseModel):
    """The `torchrun` section: how torchrun starts the processes of one worker."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    nnodes: PositiveInt = Field(default=1, description="Number of machines.")
    nproc_per_node: PositiveInt = Field(
        default=1, alias="nproc-per-node", description="Processes on each machine."
    )
    node_rank: NonNegativeInt = Field(
        default=0, alias="node-rank", description="Rank of this machine."
    )
    rdzv_backend: str | None = Field(
        default=None, alias="rdzv-backend", description="Rendezvous backend, for example `c10d`."
    )
    rdzv_endpoint: str | None = Field(
        default=None, alias="rdzv-endpoint", description="Rendezvous address, `host:port`."
    )
    rdzv_conf: str | None = Field(
        default=None, alias="rdzv-conf", description="More rendezvous settings, `key=value,…`."
    )
    monitor_interval: PositiveInt | None = Field(
        default=None, alias="monitor-interval", description="Seconds between checks of workers."
    )
    OMP_NUMBER_THREADS: PositiveInt | None = Field(
        default=None, description="OpenMP threads of each process."
    )

    @property
    def processes(self) -> int:
        """How many processes share the model on all nodes together."""
        return self.nnodes * self.nproc_per_node


class TorchServeSection(BaseModel):
    """TorchServe's keys for workers, batching and time limits."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    minWorkers: PositiveInt = Field(
        default=1, description="Workers that TorchServe starts. Each loads the weights."
    )
    maxWorkers: PositiveInt = Field(
        default=1, description="Workers up to which the management API may scale."
    )
    batchSize: PositiveInt = Field(
        default=1, description="Maximum requests that TorchServe passes to the handler at once."
    )
    maxBatchDelay: int = Field(
        default=100,
        ge=0,
        description="Milliseconds that a request waits for others. With 0, TorchServe makes "
        "batches of two at most.",
    )
    responseTimeout: PositiveInt = Field(
        default=120,
        description="Seconds for one batch. TorchServe restarts a worker that takes longer.",
    )
    startupTimeout: PositiveInt = Field(
        default=120, description="Seconds for the load of a worker, warm-up included."
    )
    deviceType: Literal["cpu", "gpu"] | None = Field(
        default=None, description="Device of the workers. Without it, GPUs where there are any."
    )
    deviceIds: list[int] | None = Field(
        default=None, description="GPUs that the workers share, by number. Without it, all."
    )
    parallelType: Literal["pp", "tp", "pptp", "custom"] | None = Field(
        default=None,
        description="`tp` with `torchrun` splits each layer over processes. `custom` gives one "
        "worker several GPUs. `pp` and `pptp` are refused.",
    )
    parallelLevel: PositiveInt | None = Field(
        default=None, description="GPUs of one worker, with `parallelType: custom`."
    )
    torchrun: Torchrun | None = Field(
        default=None, description="Processes of one worker, with `parallelType: tp`; see below."
    )
    maxRetryTimeoutInSec: PositiveInt | None = Field(
        default=None, description="Seconds during which TorchServe restarts a failing worker."
    )
    clientTimeoutInMills: PositiveInt | None = Field(
        default=None,
        description="Milliseconds after which TorchServe drops a request that still waits.",
    )
    jobQueueSize: PositiveInt | None = Field(
        default=None,
        description="Requests that may wait for this model. Further ones get status 503. Without "
        "it, `job_queue_size` of `config.properties`.",
    )
    continuousBatching: StrictBool | None = Field(
        default=None,
        description="Answers each request as soon as its own texts have ended, for modes that "
        "generate texts. With `save_mode: openvino`, with `engine: vllm`, and on CPUs and "
        "NVIDIA GPUs for greedy texts, a text also starts as soon as it arrives, beside the "
        "running ones. `batchSize` is then the number of requests in the worker, running and "
        "waiting. TorchServe serves such a model with one worker.",
    )
    useJobTicket: StrictBool | None = Field(
        default=None, description="Accepts a request only while a worker is free, without a queue."
    )
    useVenv: StrictBool | None = Field(
        default=None,
        description="Installs the model's own requirements into a virtual environment. Needs "
        "`install_py_dep_per_model=true` in `config.properties`.",
    )

    @field_validator("*")
    @classmethod
    def _check_integer(cls, value: Any) -> Any:
        if isinstance(value, int) and value > MAX_INTEGER:
            raise ValueError(f"is {value}, and TorchServe reads at most {MAX_INTEGER}; lower it")
        return value

    @model_validator(mode="after")
    def _check_workers(self) -> TorchServeSection:
        if self.maxWorkers < self.minWorkers:
            raise ValueError(
                f"maxWorkers is {self.maxWorkers} and minWorkers is {self.minWorkers}"
                "; maxWorkers must be at least minWorkers"
            )
        return self

    @model_validator(mode="after")
    def _check_parallel_level(self) -> TorchServeSection:
        if self.parallelLevel and not self.parallelType:
            raise ValueError("parallelLevel is set without parallelType; add parallelType: custom")
        return self

    @model_validator(mode="after")
    def _check_torchrun(self) -> TorchServeSection:
        """Check that torchrun is used with tp: only then does every process receive requests."""
        if (self.torchrun is None) != (self.parallelType != "tp"):
            state = "set" if self.torchrun else "not set"
            raise ValueError(
                f"parallelType is {self.parallelType or 'not set'} and torchrun is {state}"
                "; set both, parallelType: tp and torchrun: with nproc-per-node, or neither"
            )
        if self.parallelType in ("pp", "pptp"):
            raise ValueError(
                f"parallelType is {self.parallelType}, which this handler does not support"
                "; use tp with torchrun, or custom with handler.device_map"
            )
        return self

    @model_validator(mode="after")
    def _check_machines(self) -> TorchServeSection:
        """Check that rank 0 is on the machine of TorchServe, whichever machine is there first."""
        if self.torchrun is None or self.torchrun.nnodes == 1:
            return self
        if self.torchrun.rdzv_backend != "static" or not self.torchrun.rdzv_endpoint:
            raise ValueError(
                f"torchrun.nnodes is {self.torchrun.nnodes} without rdzv-backend: static and"
                " rdzv-endpoint; set both, the latter to an address of TorchServe's machine and a"
                " free port of it"
            )
        return self


class ModelConfig(TorchServeSection):
    """The contents of a model-config.yaml."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    handler: HandlerSection
    pt2: Pt2 = Pt2()
    _source: str = PrivateAttr(default=CONFIG_FILE)

    @field_validator("pt2", mode="before")
    @classmethod
    def _expand_backend(cls, value: Any) -> Any:
        """Read `pt2: inductor`, the short form of TorchServe before 0.9."""
        if isinstance(value, str):
            return {"compile": {"enable": True, "backend": value}}
        return value

    @model_validator(mode="after")
    def _check_distribution(self) -> ModelConfig:
        key = "device_map" if self.handler.device_map is not None else "model_parallel"
        if self.handler.uses_device_map and self.torchrun:
            raise ValueError(
                f"handler.{key} and torchrun are both set"
                f"; keep one: {key} spreads layers, torchrun splits them"
            )
        if self.handler.is_exported and self.torchrun:
            raise ValueError(
                f"handler.save_mode is {self.handler.save_mode} and torchrun is set"
                "; use save_mode: pretrained, or leave torchrun and parallelType out"
            )
        if self.continuousBatching and self.torchrun:
            raise ValueError(
                "continuousBatching is true and torchrun is set; keep one: texts that start by"
                " themselves would start in another order in each process"
            )
        return self

    @model_validator(mode="after")
    def _check_stored_responses(self) -> ModelConfig:
        """Check that one worker has all responses that later requests go on from."""
        if self.handler.stored_responses and self.maxWorkers > 1:
            raise ValueError(
                f"handler.stored_responses is {self.handler.stored_responses} and maxWorkers is"
                f" {self.maxWorkers}; set maxWorkers to 1, because each worker stores its own"
                " responses"
            )
        return self

    @model_validator(mode="after")
    def _check_timeouts(self) -> ModelConfig:
        """Check that a batch of predictions and explanations ends before `responseTimeout`."""
        explain_timeout = self.handler.explain_timeout or 0
        if explain_timeout >= self.responseTimeout:
            raise ValueError(
                f"handler.explain_timeout is {explain_timeout:g} s and responseTimeout"
                f" is {self.responseTimeout} s; TorchServe kills a worker after responseTimeout,"
                " so lower explain_timeout"
            )
        if self.shared_predict_seconds + self.explain_seconds >= self.responseTimeout:
            raise ValueError(
                f"handler.predict_timeout is {self.shared_predict_seconds:g} s, explain_timeout"
                f" {self.explain_seconds:g} s and responseTimeout {self.responseTimeout} s"
                "; TorchServe kills a worker after responseTimeout, so lower the other two until"
                " their sum is less"
            )
        return self

    @property
    def source(self) -> str:
        """The file that the configuration was read from, for error messages."""
        return self._source

    @property
    def predict_seconds(self) -> float:
        """Time limit for predicting a batch without explanations in seconds."""
        return self.handler.predict_timeout or COMPUTING_SHARE * self.responseTimeout

    @property
    def shared_predict_seconds(self) -> float:
        """Time limit for the predictions of a batch that has explanations, too, in seconds."""
        rest = self.responseTimeout - self.explain_seconds
        return self.handler.predict_timeout or COMPUTING_SHARE * rest

    @property
    def explain_seconds(self) -> float:
        """Time limit for explaining a batch in seconds; 0 where nothing is explained."""
        if not self.handler.captum_explanation:
            return 0.0
        rest = self.responseTimeout - (self.handler.predict_timeout or 0)
        default = min(self.responseTimeout / 2, COMPUTING_SHARE * rest)
        seconds = self.handler.explain_timeout or default
        # Without predict_timeout, predictions of the same batch get a part of the time.
        return seconds if self.handler.predict_timeout else min(seconds, COMPUTING_SHARE * rest)

    @property
    def hang_seconds(self) -> float:
        """Seconds after which a batch hangs: later than its time limits, before TorchServe's."""
        longest = max(self.predict_seconds, self.shared_predict_seconds + self.explain_seconds)
        return (longest + self.responseTimeout) / 2

    def with_save_mode(self, save_mode: str, engine: str | None = None) -> ModelConfig:
        """Return a copy with another format, and with an engine if one is given, checked again.

        Raises:
            WrongConfig: a key excludes the format.
        """
        document = self.model_dump(by_alias=True, exclude_unset=True)
        document["handler"]["save_mode"] = save_mode
        if engine is not None:
            document["handler"]["engine"] = engine
        return self.parse(document, self.source)

    @classmethod
    def parse(cls, document: Any, where: str = CONFIG_FILE) -> ModelConfig:
        """Validate a parsed YAML document.

        Args:
            where: its file, for error messages.

        Raises:
            WrongConfig: the document is invalid; the message describes the first mistake.
        """
        if not isinstance(document, dict) or "handler" not in document:
            raise WrongConfig(
                where,
                "has no handler section",
                "add handler: with a mode, as model_configs/ has it",
            )
        try:
            config = cls.model_validate(document)
        except ValidationError as error:
            raise WrongConfig(where, *describe_validation_error(cls, error)) from None
        config._source = where
        return config

    @classmethod
    def read(cls, path: Path) -> ModelConfig:
        """Read and validate a YAML file.

        Raises:
            WrongConfig: the file is missing, is not YAML or is invalid.
        """
        try:
            text = path.read_text(encoding="utf-8")
            document, repeated = parse_yaml(text), repeated_key(text)
        except FileNotFoundError:
            raise WrongConfig(str(path), "there is no such file", "pass a YAML file") from None
        except OSError as error:
            raise WrongConfig(
                str(path), f"cannot be read ({error.strerror})", "pass a YAML file"
            ) from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise WrongConfig(
                str(path), f"is not YAML ({summarize(error, 300)})", "correct the YAML syntax"
            ) from None
        if repeated:
            raise WrongConfig(str(path), f"has {repeated:.100} twice", "keep one of them")
        return cls.parse(document, str(path))._with_folders_beside(path.parent)

    def _with_folders_beside(self, folder: Path) -> ModelConfig:
        """Return a copy that names local folders from anywhere.

        A path is relative to the YAML, or else to the working folder.
        """
        handler, found = self.handler, partial(_folder_beside, folder)
        changed = {
            "model_name": found(handler.model_name),
            "assistant_model": found(handler.assistant_model),
            "adapters": {name: found(source) for name, source in handler.adapters.items()},
            "custom": _file_beside(folder, handler.custom),
        }
        update = {name: each for name, each in changed.items() if each != getattr(handler, name)}
        return self.model_copy(update={"handler": handler.model_copy(update=update)})


def _file_beside(folder: Path, name: str | None) -> str | None:
    """Return the path of a file that a YAML in a folder names; the name itself if it is not there.

    In an archive the file is in a folder of its own, where the task finds it by its name.
    """
    path = folder / Path(name or "").expanduser()
    return str(path.absolute()) if name and path.is_file() else name


def _folder_beside(folder: Path, name: str | None) -> str | None:
    """Return the folder that a YAML in another names; the name itself where there is none."""
    path = Path(name or "").expanduser()
    if not name or not path.parts:
        return name
    others = (each for each in (folder / path, path) if each != Path(name))
    return next((str(each) for each in others if each.is_dir()), name)


@dataclass(frozen=True)
class ServingDefaults:
    """TorchServe's keys for a mode, for those that a YAML does not set.

    TorchServe's own defaults are batches of one request, and no continuous batching.

    Attributes:
        max_batch_delay: `maxBatchDelay` in milliseconds. With 0, TorchServe makes batches of two at
            most.
        response_timeout: `responseTimeout` in seconds; None for TorchServe's default.
        continuous_batching: whether `continuousBatching` is the fastest, if no other key of the
            YAML excludes it.
        workers_of_exports: workers of an exported model on a CPU. While one sends its responses,
            another one computes.
    """

    batch_size: int = 16
    max_batch_delay: int = 1
    response_timeout: int | None = None
    continuous_batching: bool = False
    workers_of_exports: int = 1


# The modes whose files in model_configs/ have other values. They stand here, and not in the tasks,
# because packing a checkpoint imports no torch.
SERVING_DEFAULTS: Mapping[str, ServingDefaults] = {
    CUSTOM_MODE: ServingDefaults(batch_size=1),
    "image_text_to_text": ServingDefaults(batch_size=8),
    "mask_generation": ServingDefaults(batch_size=4),
    "sentence_embedding": ServingDefaults(workers_of_exports=2),
    "summarization": ServingDefaults(max_batch_delay=20),
    "text2text_generation": ServingDefaults(max_batch_delay=20),
    "text_generation": ServingDefaults(continuous_batching=True),
    "text_to_image": ServingDefaults(batch_size=1, response_timeout=300),
    "text_to_speech": ServingDefaults(batch_size=1),
    "translation": ServingDefaults(max_batch_delay=20),
}


def serving_defaults(mode: str) -> ServingDefaults:
    """Return TorchServe's keys for a mode."""
    return SERVING_DEFAULTS.get(mode, ServingDefaults())
