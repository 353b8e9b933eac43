"""Archives that are loaded when a request needs them answer as those that are loaded before."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from hf_serve.hosts.fork_server.messages import MODEL_SCRIPT
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import free_ports
from tests.e2e.asking import CLIENT, Question
from tests.hosts.models import MODEL, MODES, SECRET, WRITER, check_random_requests
from tests.serving import Served
from tests.waiting import wait_for

pytestmark = pytest.mark.server

SECONDS = 240
COPIES = [f"copy{number}" for number in range(4)]


class Running:
    """A server of a folder, two models of which are loaded at most."""

    def __init__(self, store: Path, log: Path) -> None:
        port = free_ports().inference
        self.store, self.log, self.url = store, log, f"http://127.0.0.1:{port}"
        command = ["-m", "hf_serve.hosts.asgi", str(store), "--port", str(port)]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, *command, "--models-max", "2"], cwd=ROOT, stdout=file, stderr=file
            )

    def is_live(self) -> bool:
        try:
            return CLIENT.get(f"{self.url}/v2/health/live").is_success
        except httpx.TransportError:
            return False

    def post(self, path: str, body: Any) -> httpx.Response:
        return CLIENT.post(self.url + path, json=body)

    def models(self) -> dict[str, Any]:
        return {each["id"]: each for each in CLIENT.get(f"{self.url}/v1/models").json()["data"]}

    def is_in(self, name: str, state: str) -> bool:
        return bool(self.models()[name]["state"] == state)

    def metric(self, name: str) -> float:
        lines = CLIENT.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def processes(self) -> list[psutil.Process]:
        """Return the processes of models, without those that started them."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        commands = [(each, " ".join(each.cmdline())) for each in below]
        return [each for each, line in commands if MODEL_SCRIPT in line and "launcher" not in line]


@pytest.fixture(scope="module")
def server(configs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    store = tmp_path_factory.mktemp("store")
    for name in MODES:
        pack(configs / f"{name}.yaml", export_path=store, checked=False)
    (store / "broken.mar").write_bytes(b"no archive")
    running = Running(store, store / "console.log")
    try:
        wait_for(lambda: running.is_live() or running.process.poll() is not None, SECONDS)
        yield running
    finally:
        running.process.terminate()
        assert running.process.wait(SECONDS) in (0, -signal.SIGTERM)


def test_a_look_at_the_models_loads_none(server: Running) -> None:
    models = server.models()
    assert {models[name]["state"] for name in MODES} == {"unloaded"}
    assert {models[name]["mode"] for name in MODES} == set(MODES)
    assert "no .mar" in models["broken"]["error"]
    assert CLIENT.get(f"{server.url}/v2/health/ready").is_success
    assert CLIENT.get(f"{server.url}/v2/models/{MODEL}/ready").json()["state"] == "unloaded"
    assert not server.processes()


@pytest.mark.parametrize("mode", MODES)
def test_random_requests_of_all_protocols_are_answered_as_by_torchserves_worker(
    server: Running, served: Callable[..., Served], mode: str
) -> None:
    def ask(question: Question) -> httpx.Response:
        return CLIENT.post(
            server.url + question.path, content=question.body, headers=question.headers
        )

    check_random_requests(ask, served, mode)
    assert server.is_in(mode, "ready")


def test_every_protocol_has_its_usual_address(server: Running) -> None:
    body = {"model": WRITER, "prompt": "A fox", "max_tokens": 4, "temperature": 0}
    own = server.post(f"/predictions/{WRITER}/1.0/v1/completions", body).json()
    assert server.post("/v1/completions", body).json()["choices"] == own["choices"]
    assert server.post("/predict", {"inputs": "A film."}).json()[0]["label"]
    assert CLIENT.get(f"{server.url}/v2/models/{MODEL}/versions/1/ready").json()["ready"]
    described = CLIENT.get(f"{server.url}/models/{WRITER}?customized=true").json()
    assert described[0]["customizedMetadata"]["mode"] == WRITER


def test_a_stream_arrives_in_parts(server: Running) -> None:
    body = {"inputs": "A fox", "parameters": {"max_new_tokens": 40}}
    with CLIENT.stream("POST", f"{server.url}/generate_stream", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        # Tokens that are written while others are sent share a part.
        assert len(list(response.iter_raw())) > 1


def test_a_process_that_was_killed_is_started_again(server: Running) -> None:
    server.post(f"/predictions/{MODEL}", {"inputs": "A film."})
    for process in server.processes():
        process.kill()
    wait_for(lambda: server.is_in(MODEL, "unloaded"))
    assert "SIGKILL" in server.models()[MODEL]["error"]
    assert server.post(f"/predictions/{MODEL}", {"inputs": "A film."}).is_success
    assert "error" not in server.models()[MODEL]


def test_metrics_of_loaded_models_are_in_one_list(server: Running) -> None:
    server.post(f"/predictions/{MODEL}", {"inputs": "A film."})
    assert server.metric(f'model_loaded{{model="{MODEL}"}}') == 1
    assert server.metric(f'model_memory_bytes{{model="{MODEL}"}}') > 1 << 20
    assert server.metric(f'hf_rows_total{{model_name="{MODEL}"}}') >= 1


def test_a_replaced_archive_is_loaded_with_the_next_request(server: Running, configs: Path) -> None:
    pack(configs / f"{MODEL}.yaml", export_path=server.store, version="2.0", checked=False)
    path = f"/predictions/{MODEL}/2.0"
    wait_for(lambda: server.post(path, {"inputs": "A film."}).is_success, SECONDS)


def test_no_text_of_a_request_is_logged(server: Running) -> None:
    server.post("/predict", {"inputs": SECRET})
    server.post("/v1/completions", {"model": SECRET, "prompt": SECRET})
    assert SECRET not in server.log.read_text("utf-8")


@pytest.mark.nightly
def test_no_request_is_lost_where_five_models_have_two_places(
    server: Running, configs: Path
) -> None:
    for name in COPIES:
        config = shutil.copy(configs / f"{MODEL}.yaml", configs / f"{name}.yaml")
        pack(Path(config), export_path=server.store, checked=False)
    wait_for(lambda: set(COPIES) <= server.models().keys(), SECONDS)

    def client(seed: int) -> Counter[int]:
        drawn, statuses = random.Random(seed), Counter[int]()
        for _ in range(10):
            path = f"/predictions/{drawn.choice([MODEL, *COPIES])}"
            statuses[server.post(path, {"inputs": "A film."}).status_code] += 1
        return statuses

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(client, range(8)), Counter()) == {200: 80}
    assert len(server.processes()) <= 2
