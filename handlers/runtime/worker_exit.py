"""Ending a worker that cannot go on, so that TorchServe starts a new one."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import NoReturn

logger = logging.getLogger(__name__)

# Time in which TorchServe passes on the responses that it was sent; the last metrics are reported,
# too.
LAST_RESPONSES_SECONDS = 1.0


def end_worker() -> NoReturn:
    """End this process, without a clean-up that would use the accelerator and could hang.

    TorchServe must be waiting for a response: a worker that ends between two batches takes the
    requests with it that TorchServe is collecting for the next one, and their clients wait forever.
    """
    logger.error(
        "The accelerator or the model failed; this worker ends, and TorchServe starts a new one"
    )
    time.sleep(LAST_RESPONSES_SECONDS)
    sys.stdout.flush()
    os._exit(1)
