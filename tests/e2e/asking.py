"""Sending requests to a server, as clients do."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from hf_serve.scripts.serving.server import Server

SECONDS = 300
# A client takes 25 ms to create, most of it for certificates that loopback does not need.
CLIENT = httpx.Client(
    timeout=SECONDS,
    trust_env=False,
    limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
)


@dataclass(frozen=True)
class Question:
    """A request to be sent: its path, raw body and headers."""

    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


def ask(server: Server, question: Question) -> httpx.Response:
    url = server.inference_url + question.path
    return CLIENT.post(url, content=question.body, headers=question.headers)


def ask_json(server: Server, path: str, body: Any, **headers: str) -> httpx.Response:
    return CLIENT.post(server.inference_url + path, json=body, headers=headers)


def ask_at_once(server: Server, questions: Sequence[Question]) -> list[httpx.Response]:
    with ThreadPoolExecutor(len(questions)) as threads:
        return list(threads.map(lambda question: ask(server, question), questions))
