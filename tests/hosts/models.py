"""Tiny models that every host serves, and a comparison with TorchServe's worker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import yaml

from handlers.protocols.dispatcher import Dispatcher
from scripts.kit.archive import pack
from tests.e2e.asking import Question
from tests.handlers.test_isolation import answers, content
from tests.random_requests import RandomRequests
from tests.serving import Served, differences

MODES = ("sequence_classification", "text_generation")
MODEL, WRITER = MODES
SLEEPING, SECONDS, QUEUE = "sleeping", 1.0, 2
CLIENTS, COUNT = 16, 60
TOLERANCE = 1e-3


def write_configs(folder: Path, checkpoint: Callable[..., Path]) -> Path:
    """Write YAMLs of tiny models: one of each mode, and one that sleeps and has a short queue."""

    def write(name: str, mode: str, **keys: Any) -> None:
        handler = {"mode": mode, "model_name": str(checkpoint(mode)), "dtype": "float32"}
        document = {"batchSize": 8, "maxBatchDelay": 5, **keys, "handler": handler}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    for mode in MODES:
        write(mode, mode)
    write(SLEEPING, MODEL, batchSize=1, jobQueueSize=QUEUE)
    return folder


def pack_modes(configs: Path, store: Path) -> Path:
    """Pack the model of each mode."""
    for mode in MODES:
        pack(configs / f"{mode}.yaml", export_path=store, checked=False)
    return store


def check_random_requests(
    ask: Callable[[Question], httpx.Response], served: Callable[..., Served], mode: str
) -> None:
    """Check that requests of all protocols are answered as by TorchServe's worker."""
    questions = RandomRequests(mode, mode, seed=0).draw(COUNT)
    model: Any = SimpleNamespace(dispatcher=Dispatcher(served(mode).engine, mode))
    expected = [answer for each in questions for answer in answers(model, [each])]
    with ThreadPoolExecutor(CLIENTS) as threads:
        responses = list(threads.map(ask, questions))
    for question, response, right in zip(questions, responses, expected, strict=True):
        found = [response.status_code, content(response.content, response.headers["content-type"])]
        shown = f"{question.path} {question.body[:300]!r}"
        assert not differences(found, right, TOLERANCE), shown
