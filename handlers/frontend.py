"""The keys of a model-config.yaml that TorchServe's frontend reads itself.

TorchServe ignores a key that it does not know and a value of the wrong type; here both are refused.
Source: `ModelConfig.java` of TorchServe 0.12.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, StrictBool, model_validator


class Frontend(BaseModel):
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
    torchrun: dict[str, Any] | None = None
    maxRetryTimeoutInSec: PositiveInt | None = None
    clientTimeoutInMills: PositiveInt | None = None
    jobQueueSize: PositiveInt | None = None
    useJobTicket: StrictBool | None = None
    useVenv: StrictBool | None = None

    @model_validator(mode="after")
    def _workers_in_order(self) -> Frontend:
        if self.maxWorkers < self.minWorkers:
            raise ValueError(
                f"maxWorkers is {self.maxWorkers} and minWorkers is {self.minWorkers}"
                "; maxWorkers must be at least minWorkers"
            )
        return self

    @model_validator(mode="after")
    def _parallel_keys_belong_together(self) -> Frontend:
        if self.parallelLevel and not self.parallelType:
            raise ValueError(
                "parallelLevel is set without parallelType"
                "; add parallelType: custom, tp, pp or pptp"
            )
        return self
