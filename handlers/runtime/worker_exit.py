"""Ending a worker whose accelerator failed, so that TorchServe starts a new one."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import threading

logger = logging.getLogger(__name__)

# A process that does not end by itself, for example in a thread or in the driver, is ended then.
GRACE_SECONDS = 10.0


def end_after_response(connection: socket.socket | None) -> None:
    """End this process as soon as the response that is being computed is sent.

    TorchServe's worker ends when its connection has no further data. So the connection is closed
    for reading, while the response can still be written. No later batch is lost, as TorchServe
    sends none before the response.

    Args:
        connection: the connection to TorchServe's frontend; None in a test.
    """
    logger.error("The accelerator failed; this worker ends, and TorchServe starts a new one")
    # Clean-up would use the accelerator, which can hang.
    atexit.register(_exit)
    timer = threading.Timer(GRACE_SECONDS, _exit)
    timer.daemon = True
    timer.start()
    if connection is not None:
        connection.shutdown(socket.SHUT_RD)


def _exit() -> None:
    sys.stdout.flush()
    os._exit(1)
