"""Archives behind KServe's SDK answer as TorchServe's worker does."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from benchmarks.sleeping import pack_sleeping
from scripts.paths import ROOT
from scripts.serving.ports import free_ports
from tests.e2e.asking import CLIENT, Question
from tests.e2e.clients import run_client
from tests.e2e.gateway import gateway_to
from tests.hosts.host_python import KSERVE_PYTHON, run_script, run_successfully
from tests.hosts.kserve.server import AskedServer, serving
from tests.hosts.models import (
    FASTEST,
    MODEL,
    MODES,
    QUEUE,
    SECONDS,
    SECRET,
    SLEEPING,
    WRITER,
    check_fastest_formats,
    check_random_requests,
    pack_modes,
)
from tests.serving import Served
from tests.waiting import wait_for

pytestmark = pytest.mark.kserve


@pytest.fixture(scope="module")
def store(configs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_modes(configs, tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedServer]:
    with serving(tmp_path_factory.mktemp("kserve"), store) as running:
        yield running


@pytest.fixture(scope="module")
def sleeping(configs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    scratch = tmp_path_factory.mktemp("sleeping")
    return pack_sleeping(configs / f"{SLEEPING}.yaml", scratch, scratch / "code", SECONDS)


@pytest.mark.parametrize("mode", MODES)
def test_random_requests_of_all_protocols_are_answered_as_by_torchserves_worker(
    server: AskedServer, served: Callable[..., Served], mode: str
) -> None:
    check_random_requests(server.ask, served, mode)


def test_archives_of_the_fastest_formats_are_served(
    server: AskedServer, served: Callable[..., Served]
) -> None:
    check_fastest_formats(server.ask, served)


def test_kserves_routes_have_kserves_bodies(server: AskedServer) -> None:
    film = {"instances": ["A lovely film."]}
    right = server.post(f"/predictions/{MODEL}", "A lovely film.").json()
    assert server.post(f"/v1/models/{MODEL}:predict", film).json() == {"predictions": right}
    assert list(server.post(f"/v1/models/{MODEL}:explain", film).json()) == ["explanations"]
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["A lovely film."]}
    answer = server.post(f"/v2/models/{MODEL}/infer", {"inputs": [tensor]}).json()
    assert answer["model_name"] == MODEL


def test_a_broken_row_fails_alone(server: AskedServer) -> None:
    body = {"instances": ["A lovely film.", 7, "Another one."]}
    first, broken, last = server.post(f"/v1/models/{MODEL}:predict", body).json()["predictions"]
    assert first["label"]
    assert last["label"]
    assert broken["code"] == 400


def test_openais_routes_find_the_model_in_the_body(server: AskedServer) -> None:
    models = server.get("/openai/v1/models").json()["data"]
    assert WRITER in [model["id"] for model in models]
    body = {"model": WRITER, "prompt": "A fox", "max_tokens": 4, "temperature": 0}
    own = server.post(f"/predictions/{WRITER}/1.0/v1/completions", body).json()
    found = server.post("/openai/v1/completions", body).json()
    assert found["choices"] == own["choices"]
    unknown = server.post("/openai/v1/completions", {**body, "model": "unknown"})
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"


def test_a_stream_arrives_in_parts(server: AskedServer) -> None:
    body = {"model": WRITER, "prompt": "A fox", "max_tokens": 12, "stream": True}
    with CLIENT.stream(
        "POST", f"{server.inference_url}/openai/v1/completions", json=body
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        parts = list(response.iter_raw())
    assert len(parts) > 3
    assert parts[-1].endswith(b"data: [DONE]\n\n")


def test_the_sdk_tells_of_server_and_models(server: AskedServer) -> None:
    assert server.get("/v1/models").json() == {"models": sorted((*MODES, *FASTEST))}
    assert server.get(f"/v1/models/{MODEL}").json() == {"name": MODEL, "ready": True}
    assert server.get(f"/v2/models/{MODEL}/ready").json()["ready"]
    assert server.get(f"/v2/models/{MODEL}/versions/1.0/ready").json()["ready"]
    assert server.get(f"/v2/models/{MODEL}/versions/9.0/ready").status_code == 404
    assert server.get("/v2/health/live").json() == {"live": True}
    assert server.get("/ping").json() == {"status": "Healthy"}
    assert server.get(f"/v2/models/{MODEL}").json()["inputs"][0]["datatype"] == "BYTES"


def test_kserves_clients_get_the_same_answer_over_rest_and_by_the_gateway_over_grpc(
    server: AskedServer,
) -> None:
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["A lovely film."]}
    call = {"model": MODEL, "inputs": [tensor]}
    with gateway_to(server.inference_url) as address:
        found = run_client(
            "kserve_v2_client",
            base_url=server.inference_url,
            address=address,
            model=MODEL,
            rest=[{"base_url": server.inference_url, **call}],
            grpc=[{**call, "binary": True}],
        )
    assert found["rest"] == found["grpc"]
    assert found["rest"][0][0].keys() == {"label", "score"}
    assert all(found["ready"])


def test_metrics_have_the_names_of_the_handler_and_of_the_sdk(server: AskedServer) -> None:
    server.post(f"/predictions/{MODEL}", "A lovely film.")
    metrics = server.get("/metrics").text
    for name in ("hf_requests_total", "request_queue_seconds_sum", "request_predict_seconds_sum"):
        assert f'{name}{{model_name="{MODEL}"}}' in metrics


@pytest.mark.parametrize(
    ("method", "path", "kind", "status"),
    [
        ("POST", "/predictions/unknown", "ModelNotFoundException", 404),
        ("POST", "/v1/models/unknown:predict", "ModelNotFoundException", 404),
        ("POST", f"/v2/models/{MODEL}/versions/9.0/infer", "ModelVersionNotFoundException", 404),
        ("DELETE", f"/predictions/{MODEL}", "MethodNotAllowedException", 405),
        ("POST", f"/v2/repository/models/{MODEL}/unload", "ResourceNotFoundException", 404),
    ],
)
def test_errors_have_torchserves_shape(
    server: AskedServer, method: str, path: str, kind: str, status: int
) -> None:
    response = CLIENT.request(method, server.inference_url + path)
    assert {"code", "type", "message", "error"} <= response.json().keys()
    assert (response.status_code, response.json()["type"]) == (status, kind)


def test_a_body_that_is_too_large_is_refused(server: AskedServer) -> None:
    response = CLIENT.post(f"{server.inference_url}/predictions/{MODEL}", content=b"x" * (11 << 20))
    assert response.status_code == 413
    assert "max_request_size" in response.json()["message"]


def test_only_the_loopback_interface_is_reached(server: AskedServer) -> None:
    connections = psutil.Process(server.pid).net_connections()
    listening = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_no_text_of_a_request_is_logged(server: AskedServer) -> None:
    for body in ({"inputs": SECRET}, {"inputs": SECRET, "parameters": {SECRET: 1}}):
        server.post(f"/predictions/{MODEL}", body)
    server.ask(Question(f"/predictions/{MODEL}", f'{{"{SECRET}'.encode(), {}))
    assert SECRET not in server.log.read_text("utf-8")


def test_a_full_queue_answers_at_once_and_sigterm_lets_requests_finish(
    sleeping: Path, tmp_path: Path
) -> None:
    question = Question(f"/predictions/{SLEEPING}", b"A film.", {})
    with serving(tmp_path, sleeping.parent) as server, ThreadPoolExecutor(12) as threads:
        asked = [threads.submit(server.ask, question) for _ in range(12)]
        # The others wait for the model, or in the queue, when these have been refused.
        wait_for(lambda: sum(each.done() for each in asked) >= 11 - QUEUE)
        os.kill(server.pid, signal.SIGTERM)
        responses = [each.result() for each in asked]
        wait_for(lambda: not server.is_alive())
    refused = [each for each in responses if each.status_code == 503]
    answered = [each for each in responses if each.status_code == 200]
    assert (len(answered), len(refused)) == (1 + QUEUE, 11 - QUEUE)
    assert {each.headers["retry-after"] for each in refused} == {"1"}


def test_archives_of_different_versions_of_the_kit_are_not_mixed(
    store: Path, sleeping: Path
) -> None:
    command = [str(KSERVE_PYTHON), "-m", "hosts.kserve", str(store), str(sleeping)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "were packed with different versions of the kit" in done.stderr


def test_archives_that_are_not_signed_are_refused_with_a_key(
    store: Path, tmp_path: Path, keys: Path
) -> None:
    place = ("--workdir", tmp_path / "work", "--model-store", store)
    options = ("--public-key", keys / "own.pub", "--port", free_ports().inference)
    done = run_script(KSERVE_PYTHON, "serve_kserve", "start", *place, *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("The archive is not trusted: it has no signature;")


def test_the_script_tells_of_models_and_of_what_is_wrong(
    server: AskedServer, tmp_path: Path
) -> None:
    told = run_successfully(KSERVE_PYTHON, "serve_kserve", "status", "--workdir", server.workdir)
    assert all(f"{name} is ready" in told for name in (*MODES, *FASTEST))
    (tmp_path / "fox.mar").write_text("no archive")
    place = ("--workdir", tmp_path / "work")
    options = ("--model-store", tmp_path, "--port", free_ports().inference, *place)
    done = run_script(KSERVE_PYTHON, "serve_kserve", "start", *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"KServe's server ended: {tmp_path}/fox.mar is no .mar;")
