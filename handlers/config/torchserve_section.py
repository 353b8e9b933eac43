"""The keys of a model-config.yaml that TorchServe's frontend reads itself.

TorchServe ignores a key that it does not know and a value of the wrong type; here both are refused.
Source: `ModelConfig.java` of TorchServe 0.12.
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
    """How torchrun starts the processes of one worker: the `torchrun:` section."""

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
        """How many processes share the model, on all nodes together."""
        return self.nnodes * self.nproc_per_node


class TorchServeSection(BaseModel):
    """Workers, batching and time limits, in TorchServe's own words."""

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
    def _workers_in_order(self) -> TorchServeSection:
        if self.maxWorkers < self.minWorkers:
            raise ValueError(
                f"maxWorkers is {self.maxWorkers} and minWorkers is {self.minWorkers}"
                "; maxWorkers must be at least minWorkers"
            )
        return self

    @model_validator(mode="after")
    def _parallel_keys_belong_together(self) -> TorchServeSection:
        if self.parallelLevel and not self.parallelType:
            raise ValueError("parallelLevel is set without parallelType; add parallelType: custom")
        return self

    @model_validator(mode="after")
    def _torchrun_is_for_tensors(self) -> TorchServeSection:
        """Only with tp does TorchServe give requests to every process that torchrun starts."""
        if (self.torchrun is None) != (self.parallelType != "tp"):
            found = "set" if self.torchrun else "not set"
            raise ValueError(
                f"parallelType is {self.parallelType or 'not set'} and torchrun is {found}"
                "; set both, parallelType: tp and torchrun: with nproc-per-node, or neither"
            )
        if self.parallelType in ("pp", "pptp"):
            raise ValueError(
                f"parallelType is {self.parallelType}, which this handler does not do"
                "; use tp with torchrun, or custom with handler.device_map"
            )
        return self
