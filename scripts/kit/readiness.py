"""Waiting for a server's models, and saying early and plainly why one will not come."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable

from handlers.errors import KitError
from scripts.kit.server import Server
from scripts.kit.tracebacks import last_error

PAUSE = 0.2
# TorchServe reads a worker's last words in a thread of its own, which a busy machine makes wait.
STILL, SILENCE = 1.0, 5.0
SILENT_DEATH = "its worker ended without a word; the machine may be out of memory"
WORD = re.compile(r"W-\d+-(?P<model>.+)_[^_ ]+-std(?:out|err) MODEL_LOG - (?P<text>.*)")
DEATH = re.compile(r"W-\d+-(?P<model>.+)_[^_ ]+ org\.pytorch\.serve\.\S+ - Retry worker")
COMPLAINT = re.compile(r"^(?:Invalid|Unrecognized|Error|.*Exception).*", re.M)
REFUSAL = re.compile(r"Failed to load model: (?P<file>.+)\n[\w.$]*?(?P<reason>\w+(?:: .*)?)$", re.M)


class ServerFailed(KitError):
    """TorchServe ended, or never began to answer."""

    def __init__(self, server: Server) -> None:
        told = COMPLAINT.search(server.log("console.log"))
        super().__init__(
            f"TorchServe ended before its models were loaded: "
            f"{told[0] if told else 'it left no word'} (logs in {server.workdir / 'logs'})."
        )


class ModelsFailed(KitError):
    """Models that cannot be loaded, each with the reason that its worker gave."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons
        super().__init__("\n".join(f"{name} did not load: {why}" for name, why in reasons.items()))


class NotReadyInTime(KitError):
    """Models that are still loading when patience ends."""

    def __init__(self, models: list[str], timeout: float) -> None:
        self.models = models
        super().__init__(
            f"{', '.join(models)} did not answer within {timeout:.0f} s; "
            "give more with --timeout, or read the logs."
        )


def wait_until_ready(
    server: Server, timeout: float, on_ready: Callable[[str, float], None] = lambda *_: None
) -> None:
    """Return once every model has a worker that waits for requests.

    `on_ready` is called with each model's name and the seconds that it took.

    Raises:
        ModelsFailed: as soon as a worker has died while it loaded.
        ServerFailed: when the server ends.
        NotReadyInTime: after `timeout` seconds.
    """
    began, waiting, failed = time.monotonic(), list(server.models), dict[str, str]()
    changed = began
    while waiting:
        alive = server.is_alive()
        for model in filter(server.is_ready, tuple(waiting)):
            waiting.remove(model)
            on_ready(model, time.monotonic() - began)
        before, failed = failed, failures(server, waiting)
        # A worker's last words arrive line by line: they count once they stand still.
        changed = changed if failed == before else time.monotonic()
        if failed and time.monotonic() - changed > _patience(failed):
            raise ModelsFailed(failed)
        if not alive:
            raise ServerFailed(server)
        if waiting and time.monotonic() - began > timeout:
            raise NotReadyInTime(waiting, timeout)
        time.sleep(PAUSE)


def _patience(failed: dict[str, str]) -> float:
    return SILENCE if SILENT_DEATH in failed.values() else STILL


def failures(server: Server, models: list[str]) -> dict[str, str]:
    """Return why each of some models failed to load, for those that did."""
    log = server.log("ts_log.log")
    refused = {refusal["file"]: refusal["reason"] for refusal in REFUSAL.finditer(log)}
    died = _last_words(log)
    reasons = {model: refused.get(server.models[model]) or died.get(model) for model in models}
    return {model: reason for model, reason in reasons.items() if reason}


def _last_words(log: str) -> dict[str, str]:
    """Return the last error of each model of which a worker has died."""
    words = defaultdict[str, list[str]](list)
    for word in WORD.finditer(log):
        words[word["model"]].append(word["text"])
    died = {death["model"] for death in DEATH.finditer(log)}
    return {model: last_error("\n".join(words[model])) or SILENT_DEATH for model in died}
