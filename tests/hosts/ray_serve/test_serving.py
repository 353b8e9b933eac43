"""Archives on a real Ray Serve answer as TorchServe's worker does, and go on where parts fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from benchmarks.sleeping import pack_sleeping
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.serving.background import RayServer
from hf_serve.scripts.serving.ports import free_ports
from tests.e2e.asking import CLIENT, Question
from tests.hosts.host_python import RAY_PYTHON, run_script, run_successfully
from tests.hosts.models import (
    MODEL,
    MODES,
    QUEUE,
    SECONDS,
    SECRET,
    SLEEPING,
    check_fastest_formats,
    check_random_requests,
    pack_modes,
)
from tests.serving import Served
from tests.waiting import wait_for

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def server(configs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayServer]:
    store, workdir = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("ray")
    pack_modes(configs, store)
    pack_sleeping(configs / f"{SLEEPING}.yaml", store, tmp_path_factory.mktemp("code"), SECONDS)
    place = ("--workdir", workdir)
    port = free_ports().inference
    run_successfully(
        RAY_PYTHON,
        "serve_ray",
        "start",
        "--model-store",
        store,
        "--port",
        port,
        "--timeout",
        600,
        *place,
    )
    server = RayServer.of(workdir)
    assert server
    yield server
    run_successfully(RAY_PYTHON, "serve_ray", "stop", *place)
    assert not server.is_alive()


def ask(server: RayServer, question: Question) -> httpx.Response:
    url = server.inference_url + question.path
    return CLIENT.post(url, content=question.body, headers=question.headers)


def ask_json(server: RayServer, path: str, body: Any) -> httpx.Response:
    return CLIENT.post(server.inference_url + path, json=body)


@pytest.mark.parametrize("mode", MODES)
def test_random_requests_of_all_protocols_are_answered_as_by_torchserves_worker(
    server: RayServer, served: Callable[..., Served], mode: str
) -> None:
    check_random_requests(partial(ask, server), served, mode)


def test_archives_of_the_fastest_formats_are_served(
    server: RayServer, served: Callable[..., Served]
) -> None:
    check_fastest_formats(partial(ask, server), served)


def test_kserves_routes_and_the_description_of_openai(
    server: RayServer,
) -> None:
    film = {"instances": ["A lovely film."]}
    assert list(ask_json(server, f"/v1/models/{MODEL}:predict", film).json()) == ["predictions"]
    assert list(ask_json(server, f"/v1/models/{MODEL}:explain", film).json()) == ["explanations"]
    models = CLIENT.get(f"{server.inference_url}/predictions/text_generation/1.0/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["text_generation"]
    for path in ("/ping", "/v2/health/live", "/v2/health/ready"):
        assert CLIENT.get(server.inference_url + path).status_code == 200


def test_a_model_is_described_and_ready_as_behind_kserves_sdk(server: RayServer) -> None:
    below_v2 = f"/v2/models/{MODEL}"
    for path in (f"/v1/models/{MODEL}", f"{below_v2}/ready", f"{below_v2}/versions/1.0/ready"):
        found = CLIENT.get(server.inference_url + path)
        assert found.status_code == 200
        assert (found.json()["name"], found.json()["ready"]) == (MODEL, True)
    for path in (below_v2, f"{below_v2}/versions/1.0"):
        described = CLIENT.get(server.inference_url + path).json()
        assert described["versions"] == ["1.0"]
        assert described["inputs"][0]["datatype"] == "BYTES"
    for path in (f"{below_v2}/versions/9.0/ready", "/v1/models/unknown", "/v2/models/unknown"):
        assert CLIENT.get(server.inference_url + path).status_code == 404


def test_every_protocol_has_its_usual_path(server: RayServer) -> None:
    states = {
        each["id"]: each["state"]
        for each in CLIENT.get(f"{server.inference_url}/v1/models").json()["data"]
    }
    assert states.keys() >= set(MODES) and set(states.values()) == {"ready"}
    body = {"model": "text_generation", "prompt": "A fox", "max_tokens": 4}
    assert ask_json(server, "/v1/completions", body).json()["choices"]
    unknown = ask_json(server, "/v1/completions", {**body, "model": "unknown"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


def test_a_stream_arrives_in_parts(server: RayServer) -> None:
    url = f"{server.inference_url}/predictions/text_generation/1.0/v1/completions"
    body = {"prompt": "A fox", "max_tokens": 12, "stream": True}
    with CLIENT.stream("POST", url, json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        parts = list(response.iter_raw())
    assert len(parts) > 3
    assert parts[-1].endswith(b"data: [DONE]\n\n")


def test_files_and_forms_are_fields(server: RayServer) -> None:
    url = f"{server.inference_url}/predictions/{MODEL}"
    right = CLIENT.post(url, content=b"A film.").json()
    file = CLIENT.post(url, files={"data": ("film.txt", b"A film.", "text/plain")})
    form = CLIENT.post(url, data={"data": "A film."})
    bare = CLIENT.post(
        url, content=b"A film.", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert file.json() == form.json() == right
    both = CLIENT.post(url, data={"inputs": ["A film.", "A song."]})
    assert both.json() == CLIENT.post(url, json={"inputs": ["A film.", "A song."]}).json()
    assert bare.json()["message"].startswith("The body came as a form without fields")


@pytest.mark.parametrize(
    ("method", "path", "kind", "status"),
    [
        ("POST", "/predictions/unknown", "ModelNotFoundException", 404),
        ("POST", f"/predictions/{MODEL}/9.0", "ModelVersionNotFoundException", 404),
        ("POST", "/unknown", "ResourceNotFoundException", 404),
        ("DELETE", f"/predictions/{MODEL}", "MethodNotAllowedException", 405),
        ("GET", "/models/unknown", "ModelNotFoundException", 404),
    ],
)
def test_errors_have_torchserves_shape(
    server: RayServer, method: str, path: str, kind: str, status: int
) -> None:
    response = CLIENT.request(method, server.inference_url + path)
    assert {"code", "type", "message", "error"} <= response.json().keys()
    assert (response.status_code, response.json()["type"]) == (status, kind)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused(server: RayServer, announced: bool) -> None:
    body = b"x" * (11 << 20)
    chunks = (body[start : start + 65536] for start in range(0, len(body), 65536))
    url = f"{server.inference_url}/predictions/{MODEL}"
    response = CLIENT.post(url, content=body if announced else chunks)
    assert response.status_code == 413
    assert "max_request_size" in response.json()["message"]


def test_a_full_queue_answers_at_once_and_the_others_are_served(server: RayServer) -> None:
    question = Question(f"/predictions/{SLEEPING}", b"A film.", {})
    with ThreadPoolExecutor(12) as threads:
        responses = list(threads.map(lambda _: ask(server, question), range(12)))
    refused = [each for each in responses if each.status_code == 503]
    answered = [each for each in responses if each.status_code == 200]
    assert len(answered) + len(refused) == 12
    assert refused
    assert len(answered) >= QUEUE
    assert {each.headers["retry-after"] for each in refused} == {"1"}
    assert refused[0].json()["type"] == "ServiceUnavailableException"


def test_a_new_version_answers_without_a_failed_request(
    server: RayServer, configs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Replicas that start in later tests read it.
    folder = tmp_path_factory.mktemp("deployed")
    archive = pack(configs / f"{MODEL}.yaml", export_path=folder, version="2.0", checked=False).path
    statuses, ended = list[int](), threading.Event()

    def ask_until_ended() -> None:
        while not ended.is_set():
            statuses.append(ask_json(server, f"/predictions/{MODEL}", {"inputs": "A."}).status_code)

    clients = [threading.Thread(target=ask_until_ended) for _ in range(4)]
    for client in clients:
        client.start()
    run_successfully(RAY_PYTHON, "serve_ray", "deploy", archive, "--workdir", server.workdir)
    wait_for(lambda: ask_json(server, f"/predictions/{MODEL}/1.0", {"inputs": "A."}).is_error, 240)
    ended.set()
    for client in clients:
        client.join()
    assert len(statuses) > 20
    assert set(statuses) == {200}
    assert ask_json(server, f"/predictions/{MODEL}/2.0", {"inputs": "A."}).status_code == 200


def test_a_replica_that_is_killed_is_replaced(server: RayServer) -> None:
    [replica] = processes(server, f"ray::ServeReplica:{MODEL}:")
    psutil.Process(replica).kill()
    wait_for(lambda: ask_json(server, f"/predictions/{MODEL}", {"inputs": "A."}).is_success, 240)
    assert processes(server, f"ray::ServeReplica:{MODEL}:") != [replica]


def test_other_programs_reach_only_the_loopback_interface(server: RayServer) -> None:
    """Replicas open a port on every address: Ray's own, whose calls need a token."""
    replicas = set(processes(server, "ray::ServeReplica"))
    addresses = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in psutil.Process(server.pid).children(recursive=True)
        if process.pid not in replicas
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_no_text_of_a_request_is_logged(server: RayServer) -> None:
    for body in ({"inputs": SECRET}, {"inputs": SECRET, "parameters": {SECRET: 1}}):
        ask_json(server, f"/predictions/{MODEL}", body)
    ask(server, Question(f"/predictions/{MODEL}", f'{{"{SECRET}'.encode()))
    assert SECRET not in server.logs()


def test_a_script_says_what_is_missing(tmp_path: Path) -> None:
    done = run_script(
        RAY_PYTHON, "serve_ray", "start", "--model-store", tmp_path, "--workdir", tmp_path
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{tmp_path} has no archives; pack them with `python scripts/create_archive.py`.\n"
    )


def test_archives_that_are_not_signed_are_refused_with_a_key(
    packed: Callable[..., Path], tmp_path: Path, keys: Path
) -> None:
    store = packed("pretrained", "sequence_classification").parent
    place = ("--model-store", store, "--workdir", tmp_path)
    done = run_script(RAY_PYTHON, "serve_ray", "start", *place, "--public-key", keys / "own.pub")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("The archive is not trusted: it has no signature;")


def processes(server: RayServer, title: str) -> list[int]:
    """Return the processes of the server whose title begins so."""
    children = psutil.Process(server.pid).children(recursive=True)
    return [each.pid for each in children if "".join(each.cmdline()).startswith(title)]
