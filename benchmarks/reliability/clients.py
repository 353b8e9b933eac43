"""Clients that know the answer to each of their requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

PHRASES = (
    "a fine film with great cast and lovely music by the singer from Paris whose brother lives in "
    "New York where new theatre opened last year nobody knows who plays piano tonight dull slow"
)
WORDS = PHRASES.split()
TEXTS = 48
# Two texts of the pool have scores that differ by more, and a score changes by less with the texts
# that it is computed beside.
LEAST_DIFFERENCE, TOLERANCE = 2e-3, 5e-4
# After this time a request counts as one without an answer.
TIMEOUT = 30.0
# A context that nothing uses: each client would read the certificates of the machine.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# Clients start within so many seconds, as those of a service are not in step.
START = 1.0
# A client waits between two requests, and longer after it was refused, each for another time.
PAUSE, PAUSE_AFTER_REFUSAL = 0.01, (0.5, 1.5)

Expected = Mapping[str, tuple[str, float]]


@dataclass(frozen=True)
class Outcome:
    """What became of a request.

    Attributes:
        sent: the time at which it was sent.
        seconds: how long the answer took.
        status: the HTTP status; 0 without an answer.
        own: whether an answer with status 200 is that of this request.
    """

    sent: float
    seconds: float
    status: int
    own: bool = True

    @property
    def ended(self) -> float:
        """The time at which it ended."""
        return self.sent + self.seconds


class Clients:
    """Clients in a thread of their own, each of which sends one request after the other.

    Args:
        url: the address of the model.
        expected: the label and the score of each text.
        count: how many clients send requests.
    """

    def __init__(self, url: str, expected: Expected, count: int) -> None:
        self.outcomes: list[Outcome] = []
        self._waiting: dict[str, float] = {}
        self._url, self._expected, self._count = url, expected, count
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send_all()), daemon=True)

    @property
    def longest_wait(self) -> float:
        """How long the oldest request without an answer waits, in seconds."""
        now = time.monotonic()
        return max((now - sent for sent in tuple(self._waiting.values())), default=0.0)

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    async def _send_all(self) -> None:
        numbers = range(self._count)
        await asyncio.gather(*(self._send_each(number) for number in numbers))

    async def _send_each(self, number: int) -> None:
        drawn = random.Random(number)
        texts = list(self._expected)
        # A pool looks at each of its connections for each request: one for all clients is slow.
        async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False, verify=NO_TLS) as client:
            await asyncio.sleep(drawn.uniform(0, START))
            for count in itertools.count():
                if self._stopped.is_set():
                    return
                outcome = await self._ask(client, f"{number}-{count}", drawn.choice(texts))
                self.outcomes.append(outcome)
                was_refused = outcome.status != 200
                await asyncio.sleep(drawn.uniform(*PAUSE_AFTER_REFUSAL) if was_refused else PAUSE)

    async def _ask(self, client: httpx.AsyncClient, name: str, text: str) -> Outcome:
        self._waiting[name] = sent = time.monotonic()
        try:
            response = await client.post(self._url, json=body_of(name, text))
        except httpx.TransportError:
            return Outcome(sent, time.monotonic() - sent, 0)
        finally:
            del self._waiting[name]
        seconds = time.monotonic() - sent
        own = response.status_code != 200 or self._is_own(response.json(), name, text)
        return Outcome(sent, seconds, response.status_code, own)

    def _is_own(self, answer: Any, name: str, text: str) -> bool:
        label, score = self._expected[text]
        found_label, found_score = read_answer(answer)
        is_same = found_label == label and abs(found_score - score) < TOLERANCE
        return bool(answer["id"] == name and is_same)


def body_of(name: str, text: str) -> dict[str, Any]:
    """Return a request of the Open Inference Protocol, whose answer has the same `id`."""
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}
    return {"id": name, "inputs": [tensor]}


def read_answer(answer: Any) -> tuple[str, float]:
    """Return the label and the score of an answer."""
    (result,) = [json.loads(each) for each in answer["outputs"][0]["data"]]
    return str(result["label"]), float(result["score"])


def learn_answers(url: str) -> Expected:
    """Return the answers to texts whose scores all differ, each asked alone."""
    expected: dict[str, tuple[str, float]] = {}
    with httpx.Client(timeout=TIMEOUT, trust_env=False) as client:
        for text in _texts():
            response = client.post(url, json=body_of("0", text))
            label, score = read_answer(response.raise_for_status().json())
            others = (each for _, each in expected.values())
            if all(abs(score - each) > LEAST_DIFFERENCE for each in others):
                expected[text] = label, score
    return expected


def _texts() -> Sequence[str]:
    drawn = random.Random(0)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(2, 40))) for _ in range(3 * TEXTS)]
