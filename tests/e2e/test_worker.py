"""Responses that leave a batch early, and workers that fail or hang."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

# A text with "poison" stands for one that makes CUDA fail, one with "hang" for one that never ends.
HANDLER = """
import time

from hf_serve.handlers.transformers_handler import TransformersHandler


class FailingHandler(TransformersHandler):
    def initialize(self, context):
        super().initialize(context)
        self.encode = self.engine.task.encode
        self.engine.task.encode = self.fail_on_poison

    def fail_on_poison(self, queries):
        if any("poison" in query.text[0] for query in queries):
            raise RuntimeError("CUDA error: device-side assert triggered")
        if any("hang" in query.text[0] for query in queries):
            time.sleep(3600)
        return self.encode(queries)
"""
# The code of a model, whose second call never ends.
OWN_CODE = """
import time


class EndpointHandler:
    def __init__(self, path=""):
        self.calls = 0

    def __call__(self, data):
        self.calls += 1
        if self.calls == 2:
            time.sleep(3600)
        return {"said": data["inputs"]}
"""
LIMITS = {"predict_timeout": 3, "explain_timeout": 6}
CONFIG = {
    "batchSize": 8,
    "maxBatchDelay": 1000,
    "responseTimeout": 12,
    "handler": {"mode": "sequence_classification", **LIMITS},
}
MANY = {"method": "kernel_shap", "n_samples": 1000}


@pytest.fixture(scope="module")
def server(
    checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    store, folder = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("handler")
    handler, config = folder / "failing_handler.py", folder / "model-config.yaml"
    handler.write_text(HANDLER, encoding="utf-8")
    config.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    files = ",".join(map(str, checkpoint("sequence_classification").iterdir()))
    archiver = Path(sys.executable).with_name("torch-model-archiver")
    options = {"model-name": "m", "version": "1.0", "handler": handler, "config-file": config}
    arguments = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    subprocess.run(
        [archiver, *arguments, "--extra-files", files, "--export-path", store], check=True
    )
    (folder / "handler.py").write_text(OWN_CODE, encoding="utf-8")
    own = {
        "mode": "custom",
        "custom": "handler.py",
        "model_name": str(folder),
        "predict_timeout": 3,
    }
    (folder / "own.yaml").write_text(yaml.safe_dump({**CONFIG, "handler": own}), encoding="utf-8")
    pack(folder / "own.yaml", export_path=store, checked=False)
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(model_store=store, workdir=workdir, timeout=480) as server:
        yield server


def ask_together(
    server: Server, *requests: tuple[str, Any], model: str = "m"
) -> list[tuple[int, httpx.Response]]:
    """Return the response to each path and body, and its place in the order of arrival."""
    order = count()

    def ask(request: tuple[str, Any]) -> tuple[int, httpx.Response]:
        path, body = request
        url = f"{server.inference_url}/{path}/{model}"
        response = httpx.post(url, json=body, timeout=120, trust_env=False)
        return next(order), response

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(ask, requests))


def worker_pid(server: Server) -> int:
    url = f"{server.management_url}/models/m"
    (version,) = httpx.get(url, timeout=30, trust_env=False).json()
    return int(version["workers"][0]["pid"])


def test_predictions_arrive_before_the_explanation_of_their_batch(server: Server) -> None:
    explanation = ("explanations", {"inputs": "A fine film", "parameters": MANY})
    prediction = ("predictions", {"inputs": "A fine film"})
    (last, explained), *others = ask_together(server, explanation, prediction, prediction)
    assert explained.status_code == 200 and explained.json()["method"] == "kernel_shap"
    assert last == 2
    for _, response in others:
        assert response.status_code == 200
        assert response.json()[0]["label"]
        assert response.headers["transfer-encoding"] == "chunked"


def test_a_connection_can_be_used_again_after_a_response_that_left_early(server: Server) -> None:
    body = {"inputs": "A fine film"}
    with httpx.Client(base_url=server.inference_url, trust_env=False, timeout=120) as client:
        expected = client.post("/predictions/m", json=body).json()
        for _ in range(2):
            with ThreadPoolExecutor(1) as pool:
                explained = pool.submit(
                    ask_together, server, ("explanations", {**body, "parameters": MANY})
                )
                answers = [client.post("/predictions/m", json=body).json() for _ in range(2)]
            assert answers == [expected] * 2
            assert explained.result()[0][1].status_code == 200


def test_a_worker_whose_accelerator_failed_answers_and_a_new_one_goes_on(server: Server) -> None:
    before = worker_pid(server)
    poison, fine = ("predictions", {"inputs": "poison"}), ("predictions", {"inputs": "fine"})
    for _, response in ask_together(server, poison, fine):
        assert response.status_code == 503
        assert "The accelerator of this worker failed" in response.json()["message"]
    ((_, response),) = ask_together(server, fine)
    assert response.status_code == 200
    assert worker_pid(server) != before


def test_a_worker_that_hangs_answers_and_a_new_one_goes_on(server: Server) -> None:
    before = worker_pid(server)
    hang, fine = ("predictions", {"inputs": "hang"}), ("predictions", {"inputs": "fine"})
    for _, response in ask_together(server, hang, fine):
        assert response.status_code == 503
        assert "took too long and its worker starts again" in response.json()["message"]
    wait_for(lambda: server.is_ready("m") and worker_pid(server) != before)
    ((_, response),) = ask_together(server, fine)
    assert response.status_code == 200
    assert "fail_on_poison" in server.log("model_log.log")


def test_a_worker_that_is_stopped_is_replaced(server: Server) -> None:
    before = worker_pid(server)
    psutil.Process(before).suspend()
    fine = ("predictions", {"inputs": "fine"})
    ((_, response),) = ask_together(server, fine)
    assert response.status_code >= 500
    wait_for(lambda: server.is_ready("m") and worker_pid(server) != before)
    ((_, response),) = ask_together(server, fine)
    assert response.status_code == 200


def test_an_answer_that_was_ready_when_the_code_of_a_model_hung_is_sent(server: Server) -> None:
    request = ("predictions", {"inputs": "fine"})
    answers = [response for _, response in ask_together(server, request, request, model="own")]
    assert sorted(response.status_code for response in answers) == [200, 503]
    (ready,) = [response for response in answers if response.is_success]
    assert ready.json() == {"said": "fine"}
