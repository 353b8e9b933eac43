"""A gRPC gateway in a separate process, as users start it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from hf_serve.scripts.installation import ROOT
from tests.e2e.clients import PYTHON

COMMAND = [str(PYTHON), str(ROOT / "scripts" / "grpc_gateway.py")]


@contextmanager
def gateway_to(target: str) -> Iterator[str]:
    """Run a gateway and yield its address; it must exit when it is terminated."""
    command = [*COMMAND, "--target", target, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().removeprefix("Ask at ").partition(" ")[0]
        finally:
            process.terminate()
            assert process.wait(timeout=20) == 0
