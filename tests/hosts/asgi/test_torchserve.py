"""Requests are passed to TorchServe and its responses come back part by part, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from hf_serve.handlers.errors import Overloaded
from hf_serve.hosts.archives import MANIFEST
from hf_serve.hosts.asgi.access import ApiKeys
from hf_serve.hosts.asgi.backend import KNOWN_MAX_AGE
from hf_serve.hosts.asgi.pool_limits import PoolLimits
from hf_serve.hosts.asgi.server import ServerSettings, create_application
from hf_serve.hosts.asgi.torchserve import Addresses, TorchServeBackend
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import free_ports
from tests.hosts.asgi.stand_in import SECONDS, running
from tests.waiting import wait_for

pytestmark = pytest.mark.server

WORKER_LOG = """\
10:00:00 [INFO ] W-9000-slow_1.0-stdout MODEL_LOG - Traceback (most recent call last):
10:00:00 [INFO ] W-9000-slow_1.0-stdout MODEL_LOG -   File "x.py", line 1, in x
10:00:00 [INFO ] W-9000-slow_1.0-stdout MODEL_LOG - ValueError: no memory
10:00:00 [INFO ] W-9000-slow_1.0-stdout MODEL_LOG -
10:00:01 [INFO ] W-9000-slow_1.0 org.pytorch.serve.wlm.WorkerThread - Retry worker
"""


class TorchServe:
    """An ASGI application with TorchServe's routes, which keeps the requests to models."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.managed: list[str] = []
        self.workers = {"minilm": "READY", "slow": "UNLOADED"}
        self.management_fails = False
        self.may_go_on, self.client_has_gone = threading.Event(), threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        path = scope["path"]
        if path.startswith("/models") and scope["method"] != "GET":
            await self._manage(scope, send)
            return
        if path.startswith("/models"):
            await self._describe(path, send)
            return
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        below = headers.get("url_path", "")
        if below == "info":
            await answer(send, {"model_pipeline_tag": "sentence-embedding"})
        elif below == "v1/models":
            await answer(
                send,
                {
                    "data": [
                        {"id": "minilm", "max_model_len": 256},
                        {"id": "own", "parent": "minilm"},
                    ]
                },
            )
        else:
            query = scope["query_string"].decode()
            seen = {"method": scope["method"], "path": scope["raw_path"].decode(), "query": query}
            self.requests.append({**seen, "headers": headers, "body": body.decode()})
            if b"stream" in body:
                await self._stream(receive, send)
            else:
                await answer(send, {"fine": True}, 207, [(b"x-own", b"1"), (b"x-own", b"2")])

    async def _describe(self, path: str, send: Any) -> None:
        if self.management_fails:
            await answer(send, {}, 500)
            return
        name = path.removeprefix("/models").strip("/").removesuffix("/all")
        if not name:
            await answer(send, {"models": [{"modelName": each} for each in self.workers]})
            return
        if name not in self.workers:
            await answer(send, {"code": 404, "message": "Model not found"}, 404)
            return
        status = self.workers[name]
        workers = [{"status": status}] * 2 if status else []
        version = {"modelVersion": "1.0", "modelUrl": f"{name}.mar", "minWorkers": len(workers)}
        await answer(send, [{**version, "workers": workers}])

    async def _manage(self, scope: Any, send: Any) -> None:
        query = dict(parse_qsl(scope["query_string"].decode()))
        if "min_worker" in query:
            await self._scale(scope["path"], query, send)
            return
        if query.get("model_name") == "refused":
            await answer(send, {"code": 409, "message": "is registered already"}, 409)
            return
        if query:
            self.workers[query["model_name"]] = "READY"
        named = f" {query['url']}" if query else ""
        if query.get("initial_workers") == "0":
            named += " with 0 workers"
        self.managed.append(f"{scope['method']} {scope['path']}{named}")
        await answer(send, {"status": "done"})

    async def _scale(self, path: str, query: dict[str, str], send: Any) -> None:
        name, count = path.split("/")[2], query["min_worker"]
        assert (query["max_worker"], query["synchronous"]) == (count, "true")
        self.managed.append(f"{name} {count}")
        if name == "broken":
            await answer(send, {"code": 500, "message": "Failed to start workers"}, 500)
            return
        self.workers[name] = "READY" if int(count) else ""
        await answer(send, {"status": "done"})

    async def _stream(self, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        gone = asyncio.create_task(receive())
        while not self.may_go_on.is_set():
            await asyncio.wait([gone], timeout=0.05)
            if gone.done():
                self.client_has_gone.set()
                return
        await send({"type": "http.response.body", "body": b"data: 2\n\n"})


async def answer(
    send: Any, content: Any, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    body = json.dumps(content).encode()
    own = [(b"content-length", str(len(body)).encode()), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})


def in_front_of(
    url: str,
    workdir: Path | None = None,
    watched: Path | None = None,
    limits: PoolLimits | None = None,
) -> Any:
    addresses = Addresses(url, url, workdir=workdir)
    seconds = 20 if watched else 2
    backend = TorchServeBackend(addresses, seconds, watched, limits)
    return create_application(backend, ServerSettings("", 1, 1, 1 << 24, ApiKeys()))


@pytest.fixture
def torchserve() -> TorchServe:
    return TorchServe()


@pytest.fixture
def client(torchserve: TorchServe) -> Iterator[httpx.Client]:
    with (
        running(torchserve) as upstream,
        running(in_front_of(upstream), "on") as url,
        httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as client,
    ):
        yield client


def test_an_address_of_torchserve_is_passed_on_as_it_is(
    torchserve: TorchServe, client: httpx.Client
) -> None:
    headers = {"X-Mine": "yes", "Connection": "keep-alive", "Authorization": "Bearer token"}
    response = client.put("/predictions/a%20b/1.0/c%2Fd?e=%20f", content=b"Hello", headers=headers)
    assert (response.status_code, response.json()) == (207, {"fine": True})
    assert response.headers.get_list("x-own") == ["1", "2"]
    (request,) = torchserve.requests
    assert (request["method"], request["body"]) == ("PUT", "Hello")
    assert (request["path"], request["query"]) == ("/predictions/a%20b/1.0/c%2Fd", "e=%20f")
    assert request["headers"]["x-mine"] == "yes"
    assert request["headers"]["authorization"] == "Bearer token"


def test_another_address_goes_to_the_default_version_with_its_path_in_a_header(
    torchserve: TorchServe, client: httpx.Client
) -> None:
    body = {"model": "minilm", "input": "Hello"}
    response = client.post("/v1/embeddings", json=body, headers={"url_path": "other"})
    assert response.status_code == 207
    (request,) = torchserve.requests
    assert (request["method"], request["path"]) == ("POST", "/v2/models/minilm/infer")
    assert request["headers"]["url_path"] == "v1/embeddings"
    assert json.loads(request["body"]) == body


def test_a_version_has_an_address_of_its_own(torchserve: TorchServe, client: httpx.Client) -> None:
    client.post("/v2/models/minilm/versions/2.0/infer", json={})
    (request,) = torchserve.requests
    assert request["path"] == "/predictions/minilm/2.0/v2/models/minilm/versions/2.0/infer"


def test_a_large_body_arrives(torchserve: TorchServe, client: httpx.Client) -> None:
    client.post("/predictions/minilm", content=b"x" * (3 << 20))
    assert client.get("/v2/health/live").status_code == 200
    (request,) = torchserve.requests
    assert int(request["headers"]["content-length"]) == 3 << 20


def test_events_arrive_one_by_one(torchserve: TorchServe, client: httpx.Client) -> None:
    with client.stream("POST", "/v1/completions", json={"model": "minilm", "stream": True}) as each:
        assert each.headers["content-type"] == "text/event-stream"
        parts = each.iter_raw()
        assert next(parts) == b"data: 1\n\n"
        torchserve.may_go_on.set()
        assert next(parts) == b"data: 2\n\n"
        assert list(parts) == []


def test_torchserve_sees_that_a_client_has_gone(
    torchserve: TorchServe, client: httpx.Client
) -> None:
    with client.stream("POST", "/v1/completions", json={"model": "minilm", "stream": True}) as each:
        next(each.iter_raw())
    assert torchserve.client_has_gone.wait(SECONDS)
    metrics = client.get("/metrics").text
    assert 'http_requests_total{api="OpenAI",status="200"} 1.0' in metrics


def test_models_have_states_modes_and_adapters(client: httpx.Client) -> None:
    listed = {each["id"]: each for each in client.get("/v1/models").json()["data"]}
    assert {name: each["state"] for name, each in listed.items()} == {
        "minilm": "ready",
        "own": "ready",
        "slow": "loading",
    }
    limits = {name: each["max_model_len"] for name, each in listed.items()}
    assert limits == {"minilm": 256, "own": 256, "slow": None}
    assert client.post("/embed", json={"inputs": "a"}).status_code == 207
    assert client.post("/v1/embeddings", json={"model": "own"}).status_code == 207
    assert client.get("/v1/models/slow").status_code == 503


def test_a_model_that_is_loaded_later_is_found(
    torchserve: TorchServe, client: httpx.Client
) -> None:
    body = {"model": "new"}
    assert client.post("/v1/embeddings", json=body).status_code == 404
    torchserve.workers["new"] = "READY"
    wait_for(lambda: client.post("/v1/embeddings", json=body).status_code == 207)


def test_the_errors_of_models_are_those_of_the_work_folder(
    torchserve: TorchServe, tmp_path: Path
) -> None:
    state = {"left_out": {"broken": "broken.mar is no archive"}}
    (tmp_path / "server.json").write_text(json.dumps(state))
    write_log(tmp_path)
    with (
        running(torchserve) as upstream,
        running(in_front_of(upstream, tmp_path), "on") as url,
    ):
        data = httpx.get(f"{url}/v1/models", trust_env=False, timeout=SECONDS).json()["data"]
    errors = {each["id"]: (each["state"], each.get("error", "")) for each in data}
    assert errors["broken"] == ("failed", "broken.mar is no archive")
    assert errors["slow"] == ("loading", "ValueError: no memory")
    assert errors["minilm"] == ("ready", "")


def test_a_model_that_fails_to_load_is_not_waited_for(
    torchserve: TorchServe, tmp_path: Path
) -> None:
    write_log(tmp_path)
    with (
        running(torchserve) as upstream,
        running(in_front_of(upstream, tmp_path), "on") as url,
        httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as client,
    ):
        for path in ("/predictions/slow", "/v2/models/slow/infer", "/v1/embeddings?model=slow"):
            response = client.post(path, json={})
            assert response.status_code == 503
            assert "slow is not served: ValueError: no memory" in response.text
        torchserve.workers["slow"] = "READY"
        wait_for(lambda: client.post("/predictions/slow", json={}).status_code == 207)
        # From now on its worker is waited for.
        torchserve.workers["slow"] = "UNLOADED"
        assert client.post("/predictions/slow", json={}).status_code == 207


def write_log(workdir: Path) -> None:
    (workdir / "logs").mkdir()
    (workdir / "logs" / "ts_log.log").write_text(WORKER_LOG)


def test_a_torchserve_that_is_gone_is_an_error_in_the_shape_of_the_api() -> None:
    gone = f"http://127.0.0.1:{free_ports().inference}"
    with running(in_front_of(gone), "on") as url:
        response = httpx.post(f"{url}/v1/embeddings", json={}, trust_env=False, timeout=SECONDS)
        passed_on = httpx.post(f"{url}/predictions/m", trust_env=False, timeout=SECONDS)
    assert (response.status_code, passed_on.status_code) == (503, 503)
    assert "does not answer" in response.json()["error"]["message"]
    assert passed_on.json()["message"].startswith("TorchServe cannot be reached")
    assert passed_on.headers["retry-after"] == "1"


def test_a_connection_that_torchserve_closes_is_opened_again() -> None:
    """The second request is read, and its connection closed without an answer."""
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            first, _ = listener.accept()
            first.recv(1 << 16)
            first.sendall(reply)
            first.recv(1 << 16)
            first.close()
            second, _ = listener.accept()
            second.recv(1 << 16)
            second.sendall(reply)
            second.close()

        thread = threading.Thread(target=serve)
        thread.start()
        upstream = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with running(in_front_of(upstream), "on") as url:
            for _ in range(2):
                answer = httpx.post(f"{url}/predictions/m", trust_env=False, timeout=SECONDS)
                assert answer.status_code == 200
                time.sleep(0.1)
        thread.join(SECONDS)


def test_models_that_are_known_are_asked_while_the_management_address_fails(
    torchserve: TorchServe,
) -> None:
    async def test(url: str) -> None:
        backend = TorchServeBackend(Addresses(url, url))
        await backend.start()
        known = await backend.models(KNOWN_MAX_AGE)
        torchserve.management_fails = True
        backend._asked_at = float("-inf")
        assert await backend.models(KNOWN_MAX_AGE) == known
        with pytest.raises(Overloaded):
            await backend.models(0.0)
        await backend.close()

    with running(torchserve) as url:
        asyncio.run(test(url))


def test_it_starts_without_torch() -> None:
    """Torch takes seconds to import, and memory."""
    program = (
        "import sys, hosts.asgi.server, hosts.asgi.torchserve as _;"
        " print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\n", done.stderr


def test_a_response_that_takes_too_long_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        upstream = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with running(in_front_of(upstream), "on") as url:
            answer = httpx.post(f"{url}/predictions/m", trust_env=False, timeout=SECONDS)
    assert answer.status_code == 503
    assert "did not answer in 2 s" in answer.json()["message"]


def archive_of(path: Path, name: str, version: str) -> None:
    """Write an archive under another name first, so that it is complete when it is found."""
    draft = path.with_name(f".{path.name}")
    with zipfile.ZipFile(draft, "w") as archive:
        model = {"modelName": name, "modelVersion": version}
        archive.writestr(str(MANIFEST), json.dumps({"model": model}))
    draft.replace(path)


def test_archives_of_a_watched_store_are_registered_replaced_and_unregistered(
    torchserve: TorchServe, tmp_path: Path
) -> None:
    archive_of(tmp_path / "minilm.mar", "minilm", "1.0")
    with (
        running(torchserve) as upstream,
        running(in_front_of(upstream, watched=tmp_path), "on") as url,
        httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as client,
        client.stream("POST", "/v1/completions", json={"model": "minilm", "stream": 1}) as stream,
    ):
        archive_of(tmp_path / "new.mar", "new", "1.0")
        wait_for(lambda: torchserve.managed == ["POST /models new.mar"])
        archive_of(tmp_path / "minilm.mar", "minilm", "2.0")
        wait_for(lambda: "PUT /models/minilm/2.0/set-default" in torchserve.managed)
        # The request before the new default is still answered by the old version.
        assert not [each for each in torchserve.managed if each.startswith("DELETE")]
        torchserve.may_go_on.set()
        stream.read()
        wait_for(lambda: "DELETE /models/minilm/1.0" in torchserve.managed)
        (tmp_path / "new.mar").unlink()
        wait_for(lambda: "DELETE /models/new/1.0" in torchserve.managed)


def test_a_model_on_demand_has_as_many_workers_as_before(
    torchserve: TorchServe, tmp_path: Path
) -> None:
    torchserve.workers = {"first": "READY", "second": "READY", "broken": ""}
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "ts_log.log").write_text(WORKER_LOG.replace("slow", "broken"))
    with (
        running(torchserve) as upstream,
        running(in_front_of(upstream, tmp_path, limits=PoolLimits(models_max=1)), "on") as url,
        httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as client,
    ):
        assert torchserve.managed == ["first 0"]
        for name in ("second", "first"):
            assert client.post(f"/predictions/{name}", json={}).status_code == 207
        assert torchserve.managed[1:] == ["second 0", "first 2"]

        assert client.post("/predictions/none", json={}).status_code == 207  # TorchServe's answer.

        answer = client.post("/v1/completions", json={"model": "broken"})
        assert answer.status_code == 503
        assert "ValueError: no memory" in answer.json()["error"]["message"]
        states = {each["id"]: each["state"] for each in client.get("/v1/models").json()["data"]}
        assert states == {"first": "unloaded", "second": "unloaded", "broken": "failed"}
    assert torchserve.managed[3:] == ["first 0", "broken 1"]


def test_a_new_archive_has_no_workers_on_demand(torchserve: TorchServe, tmp_path: Path) -> None:
    with (
        running(torchserve) as upstream,
        running(in_front_of(upstream, None, tmp_path, PoolLimits(keep_alive=60)), "on"),
    ):
        archive_of(tmp_path / "new.mar", "new", "1.0")
        wait_for(lambda: torchserve.managed == ["POST /models new.mar with 0 workers"])


def test_an_archive_that_torchserve_refuses_is_in_the_list_of_models(
    torchserve: TorchServe, tmp_path: Path
) -> None:
    with (
        running(torchserve) as upstream,
        running(in_front_of(upstream, None, tmp_path), "on") as url,
    ):
        archive_of(tmp_path / "refused.mar", "refused", "1.0")
        (tmp_path / "broken.mar").write_text("no archive")

        def errors() -> dict[str, str]:
            data = httpx.get(f"{url}/v1/models", trust_env=False, timeout=SECONDS).json()["data"]
            return {each["id"]: each.get("error", "") for each in data}

        wait_for(lambda: {"refused", "broken"} <= errors().keys())
        assert "is registered already" in errors()["refused"]
        assert "is no .mar" in errors()["broken"]
        assert errors()["minilm"] == ""
