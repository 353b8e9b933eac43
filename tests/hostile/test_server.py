"""Hostile requests to a real server, several at once: no worker ends, and none keeps memory.

`HOSTILE_BODIES=20000` sends more of them, and with both values of decode_input_request.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from hf_serve.handlers.errors import InternalError
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests.e2e.asking import CLIENT, Question, ask_json
from tests.handlers.generation.test_chat import TEMPLATE
from tests.hostile.bodies import bodies
from tests.malformed import GOOD
from tests.serving import differences

pytestmark = pytest.mark.nightly

COUNT = int(os.environ.get("HOSTILE_BODIES", "500"))
WARM_UP, AT_ONCE = 1000, 8
# `test_bodies.py` has both; config.properties has "false".
DECODED = ["false", "true"] if "HOSTILE_BODIES" in os.environ else ["false"]
MODES = {"m": "sequence_classification", "g": "text_generation"}
HANDLER: dict[str, dict[str, Any]] = {"m": {}, "g": {"parameters": {"max_new_tokens": 2}}}
TORCHSERVE = {"batchSize": AT_ONCE, "maxBatchDelay": 20, "startupTimeout": 480}
# More than the numbers that an allocator keeps for the next request.
GROWTH = 1.1


@pytest.fixture(scope="module", params=DECODED)
def server(
    request: pytest.FixtureRequest,
    checkpoint: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A server with a value of decode_input_request, with which it parses JSON itself."""
    store = tmp_path_factory.mktemp("hostile")
    template = store / "chat_template.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    for name, mode in MODES.items():
        model = {"mode": mode, "model_name": str(checkpoint(mode)), "explain_timeout": 10}
        config = store / f"{name}.yaml"
        document = {**TORCHSERVE, "handler": {**model, **HANDLER[name]}}
        config.write_text(yaml.safe_dump(document), encoding="utf-8")
        extra = [template] if name == "g" else []
        pack(config, export_path=store, extra_files=extra, checked=False)
    workdir = tmp_path_factory.mktemp("torchserve")
    overrides = {"decode_input_request": request.param}
    with TorchServe(workdir, store, timeout=480, config_overrides=overrides) as server:
        yield server


def send(server: Server, question: Question) -> int:
    """Return the status of a request; 0 where client or frontend refuse its headers."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in question.headers.items()]
    try:
        url = server.inference_url + question.path
        answer = CLIENT.post(url, content=question.body, headers=headers)
    except (httpx.ProtocolError, httpx.NetworkError):
        return 0
    status = answer.status_code
    shown = f"{question.path} {question.headers} {question.body[:300]!r} got {answer.text[:300]!r}"
    assert status < 500 or status in (503, 507) or is_refused_form(question, answer), shown
    return status


def is_refused_form(question: Question, answer: httpx.Response) -> bool:
    """Return whether the frontend failed to read a form; its exceptions have names of Java."""
    is_form = question.headers.get("Content-Type", "").startswith("multipart/")
    return is_form and answer.json()["type"] != InternalError.kind


def send_all(server: Server, questions: Iterator[Question]) -> Counter[int]:
    """Send requests, some at once; returns how often there was each status."""
    statuses: Counter[int] = Counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        while several := list(islice(questions, 100)):
            statuses.update(threads.map(lambda question: send(server, question), several))
    return statuses


def workers(server: Server) -> dict[str, list[int]]:
    """Return the process ids of each model's workers."""
    described = {name: server.describe(name) for name in MODES}
    return {
        name: [worker["pid"] for version in versions for worker in version["workers"]]
        for name, versions in described.items()
    }


def memory(pids: dict[str, list[int]]) -> dict[str, int]:
    """Return the bytes that each model's workers have in memory."""
    return {
        name: sum(psutil.Process(pid).memory_info().rss for pid in own)
        for name, own in pids.items()
    }


def answers(server: Server) -> list[Any]:
    """Return the answer of each model to an ordinary request."""
    replies = [
        ask_json(server, f"/predictions/{name}", {"inputs": GOOD[mode]})
        for name, mode in MODES.items()
    ]
    assert [reply.status_code for reply in replies] == [200] * len(MODES)
    return [reply.json() for reply in replies]


def test_hostile_requests_end_no_worker_and_fill_no_memory(server: Server) -> None:
    before, pids = answers(server), workers(server)
    send_all(server, bodies(0, WARM_UP, MODES))
    warm = memory(pids)
    statuses = send_all(server, bodies(1, COUNT, MODES))
    assert workers(server) == pids, server.log("ts_log.log")[-3000:]
    assert not differences(answers(server), before, 1e-4)
    grown = memory(pids)
    print(f"\n{dict(statuses)}, bytes: {warm}, then {grown}")  # noqa: T201 - pytest -s shows it
    for name, size in grown.items():
        assert size < GROWTH * warm[name], f"{name} grew from {warm[name]:,} to {size:,} bytes"
    assert statuses[200] and statuses[400] and statuses[413]
