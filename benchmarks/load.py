"""A closed loop of clients over HTTP: wrk, a load generator in C, that sends seeded bodies.

What an answer took is measured for each client by itself, in `load.lua`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from handlers.errors import KitError

SCRIPT = Path(__file__).with_name("load.lua")
PATIENCE = 60  # seconds for one answer: a slow contender is slow, not broken


class NoWrk(KitError):
    """The load generator is not installed."""

    def __init__(self) -> None:
        super().__init__("wrk was not found; run `apt-get install wrk`.")


class NoAnswers(KitError):
    """wrk failed, or got no answer at all."""

    def __init__(self, url: str, told: str) -> None:
        super().__init__(
            f"{url} gave wrk no answer to measure"
            f" ({' '.join(told.split())[-300:] or 'without a word'}); read the server's logs."
        )


class WrkHangs(KitError):
    """wrk went on long after its time."""

    def __init__(self, url: str, seconds: float, late: float) -> None:
        super().__init__(
            f"wrk was to end after {seconds:g} s and had not {late:g} s later, asking {url}"
            "; read the server's logs."
        )


@dataclass(frozen=True)
class Load:
    """What a number of clients got in one run.

    Attributes:
        requests: answers that came, errors left out.
        errors: answers of status 400 and above, and connections that failed, as wrk counts them.
        seconds: from the first request to the last answer, so that a server which answers in
            large batches is not measured by where its last one is cut off.
        rows_per_second: throughput; a request carries one row.
        p50_ms: the latency that half of the answers stayed below; so for the others.
    """

    requests: int
    errors: int
    seconds: float
    rows_per_second: float
    p50_ms: float
    p90_ms: float
    p99_ms: float

    @classmethod
    def read(cls, output: str) -> Load | None:
        """Return what the script printed as a line of JSON; None when nothing was answered."""
        found = _printed(output)
        if not found["microseconds"]:
            return None
        p50, p90, p99 = np.percentile(found["microseconds"], (50, 90, 99)) / 1000
        errors = sum(found["errors"].values())
        count, seconds = len(found["microseconds"]), found["seconds"]
        return cls(count, errors, seconds, count / seconds, float(p50), float(p90), float(p99))


def require_wrk() -> str:
    """Return the path of wrk.

    Raises:
        NoWrk: when it is not installed.
    """
    found = shutil.which("wrk")
    if found is None:
        raise NoWrk
    return found


def load(
    url: str, bodies: Sequence[str], content_type: str, *, clients: int, seconds: float
) -> Load:
    """Send bodies with a number of clients, each its next one as soon as it is answered.

    Where nothing was answered in time, it is tried once more, with more time than the slowest
    server needs.

    Raises:
        NoWrk: when it is not installed.
        NoAnswers: when nothing could be measured.
        WrkHangs: when it does not end.
    """
    for duration in (seconds, PATIENCE):
        done = _wrk(url, bodies, content_type, clients, duration)
        if found := Load.read(done.stdout):
            return found
        if done.returncode or sum(_printed(done.stdout)["errors"].values()):
            break
    raise NoAnswers(url, done.stderr or done.stdout)


def warm_up(
    url: str, bodies: Sequence[str], content_type: str, *, clients: int, seconds: float
) -> None:
    """Send bodies as :func:`load` does; what comes back, if anything does in time, is not read.

    Raises:
        NoWrk: when it is not installed.
        WrkHangs: when it does not end.
    """
    _wrk(url, bodies, content_type, clients, seconds)


def _wrk(
    url: str, bodies: Sequence[str], content_type: str, clients: int, seconds: float
) -> subprocess.CompletedProcess[str]:
    with TemporaryDirectory(prefix="wrk-") as scratch:
        file = Path(scratch) / "bodies.lua"
        file.write_text(_lua_table(bodies), encoding="utf-8")
        command = [
            require_wrk(),
            *(f"-t{clients}", f"-c{clients}", f"-d{max(1, round(seconds))}s"),
            *("--timeout", f"{PATIENCE}s", "-s", str(SCRIPT), url),
            *("--", str(file), content_type),
        ]
        late = 2 * PATIENCE
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=seconds + late)
        except subprocess.TimeoutExpired:
            raise WrkHangs(url, seconds, late) from None


def _printed(output: str) -> dict[str, Any]:
    lines = [line for line in output.splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1])) if lines else {"errors": {}, "microseconds": []}


def _lua_table(texts: Sequence[str]) -> str:
    """Return texts as a Lua chunk; its quoted strings escape what JSON's do."""
    return f"return {{{','.join(json.dumps(text, ensure_ascii=False) for text in texts)}}}\n"
