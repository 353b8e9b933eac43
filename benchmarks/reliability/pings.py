"""Ask `/ping` at intervals in a process of its own, whose clock the load does not slow down.

`python -m benchmarks.reliability.pings HOST PORT SECONDS` prints the times in milliseconds.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time

INTERVAL = 0.02


def start(host: str, port: int, seconds: float) -> subprocess.Popen[str]:
    """Start to ask; :func:`times` waits for the end."""
    command = [sys.executable, __file__, host, str(port), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def times(process: subprocess.Popen[str]) -> list[float]:
    """Return the time of each answer in milliseconds."""
    output, _ = process.communicate()
    return list(json.loads(output))


def main(host: str, port: int, seconds: float) -> None:
    """Print the times of the answers."""
    connection, milliseconds = http.client.HTTPConnection(host, port, timeout=10), list[float]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        try:
            connection.request("GET", "/ping")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()  # The next request opens it again.
        milliseconds.append(round(1000 * (time.perf_counter() - start), 2))
        time.sleep(INTERVAL)
    print(json.dumps(milliseconds))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
