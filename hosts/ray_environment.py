"""How Ray is imported for one machine: on the loopback interface, without usage statistics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NO_STATISTICS = {"RAY_USAGE_STATS_ENABLED": "0"}
# Ray otherwise replaces 127.0.0.1 by the machine's address on the network. Replicas of Ray Serve
# open a port on every address all the same, so calls have to have a token.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
NAMESPACE = "serve"


def import_ray(*, local: bool) -> Any:
    """Import Ray, which reads these variables when it is imported.

    Args:
        local: whether all of its processes are on this machine.
    """
    os.environ.update({**NO_STATISTICS, **(LOOPBACK if local else {})})
    import ray  # noqa: PLC0415

    return ray


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect this process to the Ray of another one on this machine within the block."""
    ray = import_ray(local=True)
    ray.init(address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()
