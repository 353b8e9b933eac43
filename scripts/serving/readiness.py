"""Wait until the models of a server are loaded, and report early why one failed."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

from hf_serve.handlers.compat.torchserve import (
    LOAD_TIMEOUT,
    START_TIMEOUT,
    archive_errors,
    console_error,
    models_with_exited_workers,
    worker_errors,
    worker_output,
    worker_pids,
)
from hf_serve.handlers.errors import KitError
from hf_serve.handlers.process.resources import available_cores
from hf_serve.hosts.fork_server.messages import ENDED
from hf_serve.hosts.fork_server.start import LOG_FILE
from hf_serve.hosts.tracebacks import last_error
from hf_serve.scripts.serving.server import Server

POLL_INTERVAL = 0.1
# Until Java has unpacked the archives and packages are imported; TorchServe's limit for a load.
JAVA_SECONDS, LOAD_SECONDS = 120.0, 120.0
# TorchServe reads a worker's output in a separate thread, which can lag behind on a busy machine.
SETTLE_SECONDS, SETTLE_SECONDS_WITHOUT_ERROR = 1.0, 5.0
NO_ERROR_LOGGED = "its worker exited without an error message; the machine may be out of memory"
TIME_LIMITS = {
    LOAD_TIMEOUT: (
        "it did not load within the startupTimeout of its YAML, 120 s by default; raise it, or"
        " serve fewer models"
    ),
    START_TIMEOUT: (
        "its Python did not start within the two minutes that TorchServe waits; the machine is busy"
    ),
}
WORKER_END = re.compile(ENDED.format(pid=r"(?P<pid>\d+)", end="(?P<end>.*)"))


def start_seconds(models: int, cores: int | None = None) -> float:
    """Return how long the start of a server may take.

    TorchServe gives the load of each model 120 s. As many load at the same time as there are cores.

    Args:
        models: how many models are loaded.
        cores: how many cores load them; by default the cores of this machine.
    """
    turns = math.ceil(models / (cores or available_cores()))
    return JAVA_SECONDS + LOAD_SECONDS * max(1, turns)


class ServerFailed(KitError):
    """TorchServe exited before its models were loaded."""

    def __init__(self, server: Server) -> None:
        error = console_error(server.log("console.log"))
        super().__init__(
            f"TorchServe exited before its models were loaded: "
            f"{error or 'no error was logged'} (logs in {server.workdir / 'logs'})."
        )


class ModelsFailed(KitError):
    """Models that failed to load, with the reason for each."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons
        super().__init__("\n".join(f"{name} did not load: {why}" for name, why in reasons.items()))


class NotReadyInTime(KitError):
    """Models that are still loading after the timeout."""

    def __init__(self, models: list[str], timeout: float) -> None:
        self.models = models
        super().__init__(
            f"{', '.join(models)} did not answer within {timeout:g} s; "
            "increase --timeout, or read the logs."
        )


def wait_until_ready(
    server: Server,
    timeout: float,
    on_ready: Callable[[str, float], None] = lambda *_: None,
    on_failed: Callable[[str, str], None] | None = None,
) -> None:
    """Wait until every model has a worker that is ready.

    Args:
        on_ready: is called with the name of each model and the seconds it took.
        on_failed: is called with the name of a model that does not load and the reason, while
            others do; None where all of them have to.

    Raises:
        ModelsFailed: a worker exited while it loaded its model; with `on_failed`, no model loads.
        ServerFailed: the server exited.
        NotReadyInTime: a model is not ready after `timeout` seconds.
    """
    started, waiting, failed = time.monotonic(), list(server.models), dict[str, str]()
    changed, given_up = started, dict[str, str]()
    while waiting:
        alive = server.is_alive()
        for model in filter(server.is_ready, tuple(waiting)):
            waiting.remove(model)
            on_ready(model, time.monotonic() - started)
        previous, failed = failed, failures(server, waiting)
        # A traceback arrives line by line: wait until the errors no longer change.
        changed = changed if failed == previous else time.monotonic()
        if failed and time.monotonic() - changed > _settle_seconds(failed):
            given_up |= failed
            if on_failed is None or len(given_up) == len(server.models):
                raise ModelsFailed(given_up)
            for model, reason in failed.items():
                on_failed(model, reason)
                waiting.remove(model)
            failed = {}
        if not alive:
            raise ServerFailed(server)
        if waiting and time.monotonic() - started > timeout:
            raise NotReadyInTime(waiting, timeout)
        time.sleep(POLL_INTERVAL)


def _settle_seconds(failed: dict[str, str]) -> float:
    without_error = NO_ERROR_LOGGED in failed.values()
    return SETTLE_SECONDS_WITHOUT_ERROR if without_error else SETTLE_SECONDS


def failures(server: Server, models: list[str]) -> dict[str, str]:
    """Return the reason for each of the models that failed to load."""
    log = server.log("ts_log.log")
    archives = archive_errors(log)
    workers = _worker_errors(log, server.log(LOG_FILE))
    reasons = {model: archives.get(server.models[model]) or workers.get(model) for model in models}
    return {model: reason for model, reason in reasons.items() if reason}


def unready_models(server: Server) -> dict[str, str]:
    """Return the models of a running server that do not answer, with the reasons of their logs.

    A reason is empty where the log has none: the model may still load.
    """
    unready = [model for model in server.models if not server.is_ready(model)]
    return dict.fromkeys(unready, "") | failures(server, unready)


def _worker_errors(log: str, fork_log: str) -> dict[str, str]:
    """Return the last error of each model with a worker that exited.

    Args:
        fork_log: the log of the fork server, which knows how workers ended.
    """
    output, limits, ends = worker_output(log), _time_limits(log), _ends(log, fork_log)
    return {
        model: last_error("\n".join(output.get(model, ())))
        or limits.get(model)
        or ends.get(model, NO_ERROR_LOGGED)
        for model in models_with_exited_workers(log)
    }


def _time_limits(log: str) -> dict[str, str]:
    """Return the time limit of TorchServe that models have passed."""
    return {model: TIME_LIMITS.get(reason, reason) for model, reason in worker_errors(log).items()}


def _ends(log: str, fork_log: str) -> dict[str, str]:
    """Return how the last worker of models ended that was killed, or exited by itself."""
    ends = {match["pid"]: match["end"] for match in WORKER_END.finditer(fork_log)}
    return {model: f"its worker {ends[pid]}" for model, pid in worker_pids(log) if pid in ends}
