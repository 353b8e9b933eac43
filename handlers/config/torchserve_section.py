"""The keys of a model-config.yaml that TorchServe's frontend reads.

TorchServe ignores unknown keys and values of the wrong type; this schema rejects both. Source:
`ModelConfig.java` of TorchServe 0.12.
"""

from __future__ import annotations

from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    StrictBool,
    model_validator,
)


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
