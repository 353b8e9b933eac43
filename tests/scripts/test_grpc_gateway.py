"""The gateway alone; tests/e2e puts it in front of a real TorchServe."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.e2e.clients import run_client
from tests.e2e.gateway import COMMAND, gateway_to

pytestmark = pytest.mark.server

TEXT = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["A film"]}
CODES = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    422: "FAILED_PRECONDITION",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class Refusing(BaseHTTPRequestHandler):
    """Answers each model, in version 1.0 or without one, with the status in its name."""

    def do_POST(self) -> None:
        _, route, *parts = self.path.split("/")
        name, version = parts[:2] if route == "predictions" else (parts[1], "1.0")
        status = int(name) if version == "1.0" else 404
        answer = {"message": "no worker"} if status == 503 else {"error": f"it is {status}"}
        body = b"" if status == 500 else json.dumps(answer).encode()
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Do not print."""


@pytest.fixture
def refusing() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(address: str, *models: str, version: str = "") -> Any:
    call = {"url": address, "inputs": [TEXT], "id": "", "version": version}
    calls = [{**call, "model": model} for model in models]
    metadata = [{"url": address, "model": models[0]}]
    return run_client("triton_client", transport="grpc", calls=calls, metadata=metadata)


def test_each_status_has_its_code_and_reason(refusing: str) -> None:
    with gateway_to(refusing) as address:
        answers = ask(address, *map(str, CODES))["answers"]
    reasons = {500: "TorchServe answered with status 500.", 503: "no worker"}
    assert answers == [
        {"status": f"StatusCode.{code}", "message": reasons.get(status, f"it is {status}")}
        for status, code in CODES.items()
    ]


def test_a_whole_number_is_a_version_too(refusing: str) -> None:
    with gateway_to(refusing) as address:
        found = [ask(address, "422", version=each)["answers"] for each in ("1", "1.0", "2", "a")]
    known = [{"status": "StatusCode.FAILED_PRECONDITION", "message": "it is 422"}]
    unknown = [{"status": "StatusCode.NOT_FOUND", "message": "it is 404"}]
    assert found == [known, known, unknown, unknown]


def test_invalid_tensors_are_refused_by_the_model(refusing: str) -> None:
    datatypes = ("STRING", "FP16", "bytes", "")
    text = {"name": "text", "shape": [1], "contents": {"bytesContents": ["QSBmaWxt"]}}
    requests: list[dict[str, Any]] = [
        {"modelName": "400", "inputs": [{**text, "datatype": each}]} for each in datatypes
    ]
    requests.append({"modelName": "422"})
    with gateway_to(refusing) as address:
        found = run_client("grpc_stubs_client", address=address, requests=requests)
    refused = [[CODES[400], "it is 400"]] * len(datatypes)
    assert found["alone"] == [*refused, [CODES[422], "it is 422"]]
    assert found["streamed"] == [*["it is 400"] * len(datatypes), "it is 422"]


def test_an_unreachable_torchserve_is_reported() -> None:
    with gateway_to("http://127.0.0.1:9") as address:
        found = ask(address, "m")
    unreachable = {
        "status": "StatusCode.UNAVAILABLE",
        "message": "TorchServe cannot be reached: ConnectError.",
    }
    assert (found["answers"], found["metadata"]) == ([unreachable], [unreachable])


def test_a_port_in_use_is_reported(refusing: str) -> None:
    port = refusing.rpartition(":")[2]
    done = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert f"The gateway cannot listen at 127.0.0.1:{port}; is the port taken?" in done.stderr
