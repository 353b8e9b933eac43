"""Archives in the process of the application answer as TorchServe's worker does."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.sleeping import pack_sleeping
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import free_ports
from tests.e2e.asking import CLIENT, Question
from tests.hosts.models import MODEL, MODES, QUEUE, SECRET, SLEEPING, WRITER, check_random_requests
from tests.hosts.models import SECONDS as PAUSE
from tests.serving import Served
from tests.waiting import wait_for

pytestmark = pytest.mark.server

SECONDS = 240


def start(store: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hf_serve.hosts.asgi", str(store), "--port", str(port)]
    with log.open("wb") as file:
        return subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)


def is_live(url: str) -> bool:
    try:
        return CLIENT.get(f"{url}/v2/health/live").is_success
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def store(configs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of each mode, and one that was changed."""
    store = tmp_path_factory.mktemp("store")
    for name in MODES:
        pack(configs / f"{name}.yaml", export_path=store, checked=False)
    with (
        zipfile.ZipFile(store / f"{MODEL}.mar") as source,
        zipfile.ZipFile(store / "broken.mar", "w") as broken,
    ):
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename == "MAR-INF/MANIFEST.json":
                content = content.replace(f'"{MODEL}"'.encode(), b'"broken"')
            broken.writestr(entry, content)
    return store


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "console.log"


@pytest.fixture(scope="module")
def url(store: Path, log: Path) -> Iterator[str]:
    port = free_ports().inference
    process = start(store, port, log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: is_live(url) or process.poll() is not None, SECONDS)
        yield url
    finally:
        process.terminate()
        assert process.wait(SECONDS) in (0, -signal.SIGTERM)


@pytest.mark.parametrize("mode", MODES)
def test_random_requests_of_all_protocols_are_answered_as_by_torchserves_worker(
    url: str, served: Callable[..., Served], mode: str
) -> None:
    def ask(question: Question) -> httpx.Response:
        return CLIENT.post(url + question.path, content=question.body, headers=question.headers)

    check_random_requests(ask, served, mode)


def test_every_protocol_has_its_usual_address(url: str) -> None:
    body = {"model": WRITER, "prompt": "A fox", "max_tokens": 4, "temperature": 0}
    own = CLIENT.post(f"{url}/predictions/{WRITER}/1.0/v1/completions", json=body).json()
    assert CLIENT.post(f"{url}/v1/completions", json=body).json()["choices"] == own["choices"]
    assert CLIENT.post(f"{url}/predict", json={"inputs": "A film."}).json()[0]["label"]
    assert CLIENT.get(f"{url}/v2/models/{MODEL}/versions/1/ready").json()["ready"]
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["A lovely film."]}
    path = f"/v2/models/{MODEL}/versions/1/infer"
    assert CLIENT.post(url + path, json={"inputs": [tensor]}).json()["outputs"]
    other = CLIENT.post(f"{url}/v2/models/{MODEL}/versions/7/infer", json={"inputs": [tensor]})
    assert (other.status_code, [*other.json()]) == (404, ["error"])


def test_an_archive_that_does_not_load_is_reported_and_the_others_are_served(url: str) -> None:
    models = {each["id"]: each for each in CLIENT.get(f"{url}/v1/models").json()["data"]}
    assert models["broken"]["state"] == "failed"
    assert "The archive is damaged" in models["broken"]["error"]
    assert {models[name]["state"] for name in MODES} == {"ready"}
    refused = CLIENT.post(f"{url}/v1/embeddings", json={"model": "broken", "input": "a"})
    assert refused.status_code == 503


def test_a_stream_arrives_in_parts(url: str) -> None:
    body = {"inputs": "A fox", "parameters": {"max_new_tokens": 12}}
    with CLIENT.stream("POST", f"{url}/generate_stream", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert len(list(response.iter_raw())) > 3


def test_requests_that_come_together_share_a_batch(url: str) -> None:
    def count(name: str) -> float:
        lines = CLIENT.get(f"{url}/metrics").text.splitlines()
        key = f'{name}{{model_name="{MODEL}"}}'
        return sum(float(line.split()[1]) for line in lines if line.startswith(key))

    CLIENT.post(f"{url}/predictions/{MODEL}", json={"inputs": "A film."})
    rows, forwards = count("hf_rows_total"), count("hf_forwards_total")
    with ThreadPoolExecutor(16) as threads:
        body = {"inputs": "A lovely film."}
        list(threads.map(lambda _: CLIENT.post(f"{url}/predict", json=body), range(64)))
    assert count("hf_rows_total") - rows == 64
    assert count("hf_forwards_total") - forwards < 64


def test_kserves_path_of_openais_protocol_finds_the_model_in_the_body(url: str) -> None:
    body = {"model": WRITER, "prompt": "A fox", "max_tokens": 4, "temperature": 0}
    right = CLIENT.post(f"{url}/v1/completions", json=body).json()
    assert (
        CLIENT.post(f"{url}/openai/v1/completions", json=body).json()["choices"] == right["choices"]
    )
    unknown = CLIENT.post(f"{url}/openai/v1/completions", json={**body, "model": "unknown"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


def test_no_text_of_a_request_is_logged(url: str, log: Path) -> None:
    CLIENT.post(f"{url}/predict", json={"inputs": SECRET})
    CLIENT.post(f"{url}/v1/completions", json={"model": SECRET, "prompt": SECRET})
    CLIENT.post(f"{url}/v1/{SECRET}", content=SECRET)
    assert SECRET not in log.read_text("utf-8")


def states(url: str) -> dict[str, Any]:
    return {each["id"]: each for each in CLIENT.get(f"{url}/v1/models").json()["data"]}


def test_an_archive_that_is_put_into_the_folder_is_served_and_a_removed_one_is_not(
    url: str, store: Path, configs: Path
) -> None:
    config = shutil.copy(configs / f"{MODEL}.yaml", configs / "added.yaml")
    pack(Path(config), export_path=store, checked=False)
    wait_for(lambda: "added" in states(url), SECONDS)
    assert CLIENT.post(f"{url}/predictions/added", json={"inputs": "A film."}).is_success
    (store / "added.mar").unlink()
    wait_for(lambda: "added" not in states(url), SECONDS)
    assert CLIENT.post(f"{url}/predictions/added", json={"inputs": "A film."}).status_code == 404


def test_an_archive_is_replaced_without_a_failed_request(
    url: str, store: Path, configs: Path
) -> None:
    path, statuses, ended = f"{url}/predictions/{MODEL}", list[int](), threading.Event()

    def ask_until_ended() -> None:
        while not ended.is_set():
            statuses.append(CLIENT.post(path, json={"inputs": "A film."}).status_code)

    clients = [threading.Thread(target=ask_until_ended) for _ in range(4)]
    for client in clients:
        client.start()
    pack(configs / f"{MODEL}.yaml", export_path=store, version="2.0", checked=False)
    wait_for(lambda: CLIENT.post(f"{path}/2.0", json={"inputs": "A film."}).is_success, SECONDS)
    ended.set()
    for client in clients:
        client.join()
    assert set(statuses) == {200}


def test_a_broken_file_leaves_the_model_that_is_served_and_is_reported(
    url: str, store: Path
) -> None:
    (store / f"{MODEL}.mar").write_bytes(b"no archive")
    wait_for(lambda: "no .mar" in states(url)[MODEL].get("error", ""), SECONDS)
    assert states(url)[MODEL]["state"] == "ready"
    assert CLIENT.post(f"{url}/predictions/{MODEL}", json={"inputs": "A film."}).is_success


@pytest.mark.nightly
def test_a_yaml_that_is_put_into_the_folder_is_packed_and_served(
    url: str, store: Path, configs: Path
) -> None:
    shutil.copy(configs / f"{MODEL}.yaml", store / "own.yaml")
    (store / "wrong.yaml").write_text("handler: {mode: tea}")
    wait_for(lambda: {"own", "wrong"} <= states(url).keys(), SECONDS)
    assert CLIENT.post(f"{url}/predictions/own", json={"inputs": "A film."}).is_success
    assert "tea" in states(url)["wrong"]["error"]


@pytest.mark.nightly
def test_a_full_queue_answers_at_once_and_sigterm_lets_requests_finish(
    configs: Path, tmp_path: Path
) -> None:
    archive = pack_sleeping(configs / f"{SLEEPING}.yaml", tmp_path, tmp_path / "code", PAUSE)
    port = free_ports().inference
    server = start(archive, port, tmp_path / "console.log")
    url = f"http://127.0.0.1:{port}"
    wait_for(lambda: is_live(url), SECONDS)
    with ThreadPoolExecutor(12) as threads:
        path = f"{url}/predictions/{SLEEPING}"
        asked = [threads.submit(CLIENT.post, path, content=b"A film.") for _ in range(12)]
        # The others wait for the model, or in the queue, when these have been refused.
        wait_for(lambda: sum(each.done() for each in asked) >= 11 - QUEUE)
        server.terminate()
        responses = [each.result() for each in asked]
    assert server.wait(SECONDS) in (0, -signal.SIGTERM)
    refused = [each for each in responses if each.status_code == 503]
    answered = [each for each in responses if each.status_code == 200]
    assert (len(answered), len(refused)) == (1 + QUEUE, 11 - QUEUE)
    assert {each.headers["retry-after"] for each in refused} == {"1"}
