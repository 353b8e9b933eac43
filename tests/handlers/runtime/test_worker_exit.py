from __future__ import annotations

import subprocess
import sys

# What TorchServe's worker does after the handler returned: it sends the response, and reads.
WORKER = """
import atexit, logging, socket, sys
from handlers.runtime.worker_exit import end_after_response

logging.basicConfig(stream=sys.stdout)
atexit.register(print, "cleaned up")
connection, frontend = socket.socketpair()
end_after_response(connection)
connection.sendall(b"response")
print("received", frontend.recv(100).decode())
if not connection.recv(1):
    sys.exit(0)
"""


def test_a_worker_sends_its_response_and_ends_without_clean_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKER], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stderr
    assert "received response" in done.stdout
    assert "this worker ends, and TorchServe starts a new one" in done.stdout
    assert "cleaned up" not in done.stdout
