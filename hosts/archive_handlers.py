"""What hosts use of the `handlers` of an archive, also where an older version has packed it."""

# mypy: disable-error-code="import-not-found, no-redef, no-untyped-def"
from __future__ import annotations

from inspect import signature
from typing import Any

try:
    from hf_serve.handlers.checkpoints.placement import pick_device
    from hf_serve.handlers.process.deadline import Deadline
    from hf_serve.handlers.process.resources import FreedMemory
    from hf_serve.handlers.process.threads import set_num_threads
    from hf_serve.handlers.telemetry.metrics import Meter
except ImportError:  # version 0.2.0
    from hf_serve.handlers.checkpoints.devices import pick_device
    from hf_serve.handlers.runtime.deadline import Deadline
    from hf_serve.handlers.runtime.memory import FreedMemory
    from hf_serve.handlers.runtime.threads import set_num_threads
    from hf_serve.handlers.telemetry.meter import Meter

try:
    from hf_serve.handlers.dispatcher import Dispatcher
    from hf_serve.handlers.worker_start import load_engine, prepare_process
except ImportError:  # version 0.2.0
    from hf_serve.handlers.protocols.dispatcher import Dispatcher
    from hf_serve.handlers.runtime.integrity import verify
    from hf_serve.handlers.runtime.memory import limit_memory_growth
    from hf_serve.handlers.telemetry.log_levels import silence_libraries

    from hf_serve.handlers.engine import Engine

    def prepare_process() -> None:  # noqa: D103 - as in handlers.worker_start
        limit_memory_growth()
        silence_libraries()

    def load_engine(folder, config=None, device="cpu"):  # type: ignore[misc]  # noqa: D103
        sums = {"sums": verify(folder)} if "sums" in signature(Engine.load).parameters else {}
        engine = Engine.load(folder, config, device, **sums)
        engine.require_health()
        return engine


try:
    from hf_serve.handlers.types.model_info import TEXT_COLUMN
    from hf_serve.handlers.types.request import Request
except ImportError:  # version 0.2.0
    from hf_serve.handlers.schemas.model_info import TEXT_COLUMN
    from hf_serve.handlers.schemas.request import Request

try:
    from hf_serve.handlers.telemetry.metrics import BUCKETS
except ImportError:  # version 0.2.0
    BUCKETS = (0.001, 0.01, 0.1, 1.0, 10.0)  # type: ignore[assignment]

try:
    from hf_serve.handlers.process.resources import release_memory
except ImportError:  # version 0.2.0

    def release_memory() -> None:  # noqa: D103 - as in handlers.process.resources
        pass


# An item of a list; version 0.2.0 says that it is not alone.
IS_ITEM: dict[str, Any] = (
    {"is_batch_item": True} if hasattr(Request, "is_batch_item") else {"alone": False}
)

__all__ = [
    "BUCKETS",
    "IS_ITEM",
    "TEXT_COLUMN",
    "Deadline",
    "Dispatcher",
    "FreedMemory",
    "Meter",
    "Request",
    "load_engine",
    "pick_device",
    "prepare_process",
    "release_memory",
    "set_num_threads",
]
