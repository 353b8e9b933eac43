"""Archives are served with the contract of KServe's containers, and KServe's client uses them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.serving.background import KServeServer
from hf_serve.scripts.serving.ports import free_ports
from tests.e2e.asking import CLIENT
from tests.e2e.clients import run_client
from tests.e2e.gateway import gateway_to
from tests.hosts.host_python import run_script, run_successfully
from tests.hosts.models import MODEL

pytestmark = pytest.mark.server

PYTHON = Path(sys.executable)
FILM = "A lovely film."
TENSOR = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [FILM]}


@pytest.fixture(scope="module")
def store(configs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store")
    pack(configs / f"{MODEL}.yaml", export_path=store, checked=False)
    return store


@pytest.fixture(scope="module")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KServeServer]:
    place = ("--workdir", tmp_path_factory.mktemp("kserve"))
    options = ("--model-store", store, "--port", free_ports().inference)
    run_successfully(PYTHON, "serve_kserve", "start", *options, *place)
    server = KServeServer.of(place[1])
    assert server
    yield server
    run_successfully(PYTHON, "serve_kserve", "stop", *place)
    assert not server.is_alive()


def post(server: KServeServer, path: str, body: Any) -> httpx.Response:
    return CLIENT.post(server.inference_url + path, json=body)


def test_v1_and_v2_have_kserves_bodies(server: KServeServer) -> None:
    right = post(server, f"/predictions/{MODEL}", FILM).json()
    film = {"instances": [FILM]}
    assert post(server, f"/v1/models/{MODEL}:predict", film).json() == {"predictions": right}
    assert list(post(server, f"/v1/models/{MODEL}:explain", film).json()) == ["explanations"]
    answer = post(server, f"/v2/models/{MODEL}/infer", {"inputs": [TENSOR]}).json()
    assert answer["model_name"] == MODEL


def test_server_and_models_are_described(server: KServeServer) -> None:
    assert server.get("/v1/models").json()["models"] == [MODEL]
    told = server.get(f"/v1/models/{MODEL}").json()
    assert (told["name"], told["ready"]) == (MODEL, True)
    assert server.get(f"/v2/models/{MODEL}/ready").json()["ready"]
    assert server.get(f"/v2/models/{MODEL}/versions/1.0/ready").json()["ready"]
    assert server.get(f"/v2/models/{MODEL}/versions/9.0/ready").status_code == 404
    assert server.get("/v2/health/live").json() == {"live": True}
    assert server.get("/v2/health/ready").json() == {"ready": True}
    assert server.get(f"/v2/models/{MODEL}").json()["inputs"][0]["datatype"] == "BYTES"


def test_kserves_client_gets_the_same_answer_over_rest_and_by_the_gateway_over_grpc(
    server: KServeServer,
) -> None:
    call = {"model": MODEL, "inputs": [TENSOR]}
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


def test_metrics_have_the_names_that_kserves_containers_have(server: KServeServer) -> None:
    post(server, f"/predictions/{MODEL}", FILM)
    metrics = server.get("/metrics").text
    for name in ("hf_requests_total", "request_queue_seconds_sum", "request_predict_seconds_sum"):
        assert f'{name}{{model_name="{MODEL}"}}' in metrics


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/models/unknown:predict", 404),
        ("POST", f"/v2/models/{MODEL}/versions/9.0/infer", 404),
        ("DELETE", f"/predictions/{MODEL}", 405),
        # Clients may not unload a model.
        ("POST", f"/v2/repository/models/{MODEL}/unload", 404),
    ],
)
def test_an_error_says_what_is_wrong(
    server: KServeServer, method: str, path: str, status: int
) -> None:
    response = CLIENT.request(method, server.inference_url + path)
    assert response.status_code == status
    assert response.json()["error"]


def test_only_the_loopback_interface_is_reached(server: KServeServer) -> None:
    connections = psutil.Process(server.pid).net_connections()
    listening = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_the_script_tells_of_models_and_of_what_is_wrong(
    server: KServeServer, store: Path, tmp_path: Path, keys: Path
) -> None:
    told = run_successfully(PYTHON, "serve_kserve", "status", "--workdir", server.workdir)
    assert f"{MODEL} is ready" in told
    place = ("--workdir", tmp_path / "work", "--port", free_ports().inference)
    key = ("--public-key", keys / "own.pub")
    done = run_script(PYTHON, "serve_kserve", "start", *place, "--model-store", store, *key)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("The archive is not trusted: it has no signature;")
    (tmp_path / "fox.mar").write_text("no archive")
    done = run_script(PYTHON, "serve_kserve", "start", *place, "--model-store", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"KServe's server ended: {tmp_path}/fox.mar is no .mar;")
