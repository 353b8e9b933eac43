"""What is private in vLLM.

vLLM's program runs this file with another Python, without the kit on its path, so that it imports
nothing of it.
"""

from __future__ import annotations

import time
from functools import partial

# Seconds between two looks at whether a step has ended.
PAUSE = 1e-5


def pause_while_polling() -> None:
    """Have vLLM sleep while it waits for the end of a step.

    vLLM looks without a pause, which keeps the interpreter from the thread that sends the tokens:
    on two cores, a stream can come at its end.

    Breaks when `shm_broadcast` waits by another function than `sched_yield`.
    """
    from vllm.distributed.device_communicators import shm_broadcast  # noqa: PLC0415

    shm_broadcast.sched_yield = partial(time.sleep, PAUSE)
