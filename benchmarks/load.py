"""Generate a closed loop of HTTP clients with wrk, and measure latency and throughput.

`load.lua` measures the latency separately for each client.
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

from hf_serve.handlers.errors import KitError

SCRIPT = Path(__file__).with_name("load.lua")
TIMEOUT = 60  # seconds for one response, enough for a slow contender


class WrkNotFound(KitError):
    """wrk is not installed."""

    def __init__(self) -> None:
        super().__init__("wrk was not found; run `apt-get install wrk`.")


class NoResponses(KitError):
    """wrk failed, or received no response."""

    def __init__(self, url: str, output: str) -> None:
        super().__init__(
            f"wrk received no response from {url}"
            f" ({' '.join(output.split())[-300:] or 'it printed nothing'}); read the server's logs."
        )


class WrkTimeout(KitError):
    """wrk did not exit."""

    def __init__(self, url: str, seconds: float, late: float) -> None:
        super().__init__(
            f"wrk should have finished after {seconds:g} s and was still running {late:g} s later"
            f" ({url}); read the server's logs."
        )


@dataclass(frozen=True)
class Load:
    """The results of one run with a number of clients.

    Attributes:
        requests: number of successful responses. The latencies are those of all requests.
        errors: responses of status 400 and above, and failed connections, as counted by wrk.
        seconds: from the first request to the last response, so that the result does not depend on
            whether the last large batch completes before the end of the run.
        rows_per_second: throughput; a request contains one row.
        p50_ms: median latency; likewise for the other percentiles.
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
        """Parse the JSON line printed by the script; None if there were no responses."""
        found = _printed(output)
        count = min(found["responses"], len(found["microseconds"]))
        if not count:
            return None
        p50, p90, p99 = np.percentile(found["microseconds"], (50, 90, 99)) / 1000
        errors = sum(found["errors"].values())
        seconds = found["seconds"]
        return cls(count, errors, seconds, count / seconds, float(p50), float(p90), float(p99))


def require_wrk() -> str:
    """Return the path of wrk.

    Raises:
        WrkNotFound: it is not installed.
    """
    found = shutil.which("wrk")
    if found is None:
        raise WrkNotFound
    return found


def load(
    url: str, bodies: Sequence[str], content_type: str, *, clients: int, seconds: float
) -> Load:
    """Send bodies with a number of clients, each waiting for a response before the next request.

    If there is no response in time, the run is repeated with a longer duration.

    Raises:
        WrkNotFound: wrk is not installed.
        NoResponses: there was nothing to measure.
        WrkTimeout: wrk did not exit.
    """
    for duration in (seconds, TIMEOUT):
        done = _wrk(url, bodies, content_type, clients, duration)
        if found := Load.read(done.stdout):
            return found
        if done.returncode or sum(_printed(done.stdout)["errors"].values()):
            break
    raise NoResponses(url, done.stderr or done.stdout)


def warm_up(
    url: str, bodies: Sequence[str], content_type: str, *, clients: int, seconds: float
) -> None:
    """Send bodies like :func:`load` and ignore the responses.

    Raises:
        WrkNotFound: wrk is not installed.
        WrkTimeout: wrk did not exit.
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
            *("--timeout", f"{TIMEOUT}s", "-s", str(SCRIPT), url),
            *("--", str(file), content_type),
        ]
        late = 2 * TIMEOUT
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=seconds + late)
        except subprocess.TimeoutExpired:
            raise WrkTimeout(url, seconds, late) from None


def _printed(output: str) -> dict[str, Any]:
    lines = [line for line in output.splitlines() if line.startswith("{")]
    nothing = {"errors": {}, "microseconds": [], "responses": 0}
    return dict(json.loads(lines[-1])) if lines else nothing


def _lua_table(texts: Sequence[str]) -> str:
    """Return texts as a Lua table; JSON string escapes are valid in Lua."""
    return f"return {{{','.join(json.dumps(text, ensure_ascii=False) for text in texts)}}}\n"
