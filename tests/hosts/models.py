"""Tiny models that every host serves, and a comparison with TorchServe's worker."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import yaml

from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.formats import CHOICE_FILE
from hf_serve.scripts.archives.packing import pack
from tests.e2e.asking import Question
from tests.handlers.test_isolation import answers, content
from tests.random_requests import RandomRequests
from tests.serving import Served, differences

MODES = ("sequence_classification", "text_generation")
MODEL, WRITER = MODES
# Models that are packed with `save_mode: auto`, which is OpenVINO on CPUs, and their requests.
FASTEST: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "fast_embedding": ("sentence_embedding", {}, {}),
    "fast_writer": (WRITER, {"continuousBatching": True}, {"max_new_tokens": 4}),
}
# The rows that measure exports are longer than tiny models take.
SHORTER = {"truncation": True, "max_length": 64}
SLEEPING, SECONDS, QUEUE = "sleeping", 1.0, 2
CLIENTS, COUNT = 16, 60
TOLERANCE = 1e-3
# Must not be found in a log.
SECRET = "quetzalcoatl"


def write_configs(folder: Path, checkpoint: Callable[..., Path]) -> Path:
    """Write YAMLs of tiny models: one of each mode, the fast ones, and one that sleeps."""

    def write(name: str, mode: str, handler_keys: Mapping[str, Any] = {}, **keys: Any) -> None:
        handler = {"mode": mode, "model_name": str(checkpoint(mode)), "dtype": "float32"}
        handler |= handler_keys
        document = {"batchSize": 8, "maxBatchDelay": 5, **keys, "handler": handler}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    for mode in MODES:
        write(mode, mode)
    for name, (mode, keys, _) in FASTEST.items():
        write(name, mode, {"save_mode": "auto", **SHORTER}, **keys)
    write(SLEEPING, MODEL, batchSize=1, jobQueueSize=QUEUE)
    return folder


def pack_modes(configs: Path, store: Path) -> Path:
    """Pack the model of each mode, and the fast ones."""
    for name in (*MODES, *FASTEST):
        pack(configs / f"{name}.yaml", export_path=store, checked=False)
    for name in FASTEST:
        with zipfile.ZipFile(store / f"{name}.mar") as archive:
            assert json.loads(archive.read(CHOICE_FILE))["save_mode"] == "openvino"
    return store


def check_fastest_formats(
    ask: Callable[[Question], httpx.Response], served: Callable[..., Served]
) -> None:
    """Check that archives of `save_mode: auto` load, and answer as their checkpoints do."""
    for name, (mode, _, parameters) in FASTEST.items():
        body = {"inputs": "A lovely film.", "parameters": parameters}
        response = ask(Question(f"/predictions/{name}", json.dumps(body).encode()))
        expected = served(mode).ask("A lovely film.", **parameters)
        assert response.status_code == 200, response.text
        assert not differences(response.json(), expected, TOLERANCE)


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
