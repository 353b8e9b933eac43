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

    nnodes: PositiveInt = 1
    nproc_per_node: PositiveInt = Field(default=1, alias="nproc-per-node")
    node_rank: NonNegativeInt = Field(default=0, alias="node-rank")
    rdzv_backend: str | None = Field(default=None, alias="rdzv-backend")
    rdzv_endpoint: str | None = Field(default=None, alias="rdzv-endpoint")
    rdzv_conf: str | None = Field(default=None, alias="rdzv-conf")
    monitor_interval: PositiveInt | None = Field(default=None, alias="monitor-interval")
    OMP_NUMBER_THREADS: PositiveInt | None = None

    @property
    def processes(self) -> int:
        """How many processes share the model on all nodes together."""
        return self.nnodes * self.nproc_per_node


class TorchServeSection(BaseModel):
    """TorchServe's keys for workers, batching and time limits."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    minWorkers: PositiveInt = 1
    maxWorkers: PositiveInt = 1
    batchSize: PositiveInt = 1
    maxBatchDelay: int = Field(default=100, ge=0)
    responseTimeout: PositiveInt = 120
    startupTimeout: PositiveInt = 120
    deviceType: Literal["cpu", "gpu"] | None = None
    deviceIds: list[int] | None = None
    parallelType: Literal["pp", "tp", "pptp", "custom"] | None = None
    parallelLevel: PositiveInt | None = None
    torchrun: Torchrun | None = None
    maxRetryTimeoutInSec: PositiveInt | None = None
    clientTimeoutInMills: PositiveInt | None = None
    jobQueueSize: PositiveInt | None = None
    useJobTicket: StrictBool | None = None
    useVenv: StrictBool | None = None

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
