"""What hosts use of the `handlers` of an archive, also where an older version has packed it."""

from __future__ import annotations

try:
    from handlers.dispatcher import Dispatcher
    from handlers.worker_start import load_engine, prepare_process
except ModuleNotFoundError:  # version 0.2.0 and before
    from handlers.protocols.dispatcher import Dispatcher  # type: ignore[import-not-found,no-redef]

    from handlers.engine import Engine
    from handlers.runtime.integrity import verify
    from handlers.runtime.memory import limit_memory_growth
    from handlers.telemetry.log_levels import silence_libraries

    def prepare_process() -> None:  # noqa: D103 - as in handlers.worker_start
        limit_memory_growth()
        silence_libraries()

    def load_engine(folder, config=None, device="cpu"):  # type: ignore[no-untyped-def,misc]  # noqa: D103
        engine = Engine.load(folder, config, device, sums=verify(folder))
        engine.require_health()
        return engine


__all__ = ["Dispatcher", "load_engine", "prepare_process"]
