"""How soon a server answers, and what its worker takes of the memory."""

from __future__ import annotations

import time
from typing import Any

import httpx
import psutil

from benchmarks.contenders.base import Contender
from handlers.errors import KitError
from scripts.kit.processes import members


class WrongAnswer(KitError):
    """The first request failed."""

    def __init__(self, name: str, answer: httpx.Response) -> None:
        super().__init__(
            f"{name} answered its first request with {answer.status_code}"
            f" ({' '.join(answer.text.split())[:200]}); read its logs."
        )


def first_answer(contender: Contender, inputs: Any) -> float:
    """Start a contender and return the seconds until it has answered a request.

    Raises:
        KitError: when it does not start or does not answer; the caller stops it.
    """
    began = time.monotonic()
    contender.start()
    answer = httpx.post(
        contender.url,
        content=contender.body(inputs).encode(),
        headers={"Content-Type": contender.content_type},
        timeout=600,
        trust_env=False,
    )
    if not answer.is_success:
        raise WrongAnswer(contender.name, answer)
    return time.monotonic() - began


def worker_bytes(leader: int) -> int:
    """Return the memory of the largest Python process of a server, which holds the model.

    Pages that processes share are divided among them (PSS), where the system tells it.
    """
    workers = [each for each in members(leader) if "python" in each.name()]
    return max((_bytes(worker) for worker in workers), default=0)


def _bytes(process: psutil.Process) -> int:
    memory = process.memory_full_info()
    return int(getattr(memory, "pss", memory.rss))
