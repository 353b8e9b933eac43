from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from handlers.runtime.integrity import UntrustedArchive
from scripts.kit.ports import PortInUse
from scripts.kit.processes import group_members
from scripts.kit.readiness import ModelsFailed, NotReadyInTime, ServerFailed
from scripts.kit.rollout import Rollout
from scripts.kit.server import Server
from scripts.kit.tokens import Tokens
from scripts.kit.torchserve import TorchServe
from tests.sentences import refused
from tests.standins.archives import BROKEN, ECHO, KILLED, SLOW, write_archive
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    write_archive(folder, "echo", ECHO)
    return folder


@pytest.fixture(scope="module")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", "/poison")
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        with TorchServe(tmp_path_factory.mktemp("work"), model_store=store) as running:
            yield running


def ask(server: Server) -> httpx.Response:
    return httpx.post(f"{server.inference_url}/predictions/echo", content=b"hello", timeout=30)


def test_a_model_is_served_under_its_file_name(server: Server) -> None:
    assert ask(server).json()["folder"].startswith(str(server.scratch))


def test_workers_run_offline_and_without_the_pythonpath_of_the_caller(server: Server) -> None:
    seen = ask(server).json()

    assert "/poison" not in seen["path"]
    assert seen["offline"] == "1"


def test_a_worker_is_forked_and_a_killed_one_is_replaced(server: Server) -> None:
    """The fork server is the child of Java, workers are its children."""
    (worker,) = server.describe("echo")[0]["workers"]
    process = psutil.Process(worker["pid"])
    parents = [each.pid for each in process.parents()]

    process.kill()

    wait_for(lambda: server.describe("echo")[0]["workers"][0]["pid"] not in (worker["pid"], -1))
    wait_for(lambda: server.is_ready("echo"))
    assert ask(server).is_success
    assert parents[1] == server.pid
    assert "model_service_worker.py" in process_command(server)


def process_command(server: Server) -> str:
    (worker,) = server.describe("echo")[0]["workers"]
    return " ".join(psutil.Process(worker["pid"]).cmdline()[:2])


def test_without_a_fork_server_torchserve_starts_workers(store: Path, tmp_path: Path) -> None:
    with TorchServe(tmp_path, model_store=store, fork_server=False) as running:
        (worker,) = running.describe("echo")[0]["workers"]
        assert psutil.Process(worker["pid"]).ppid() == running.pid


def test_logs_are_written_to_the_work_folder(server: Server) -> None:
    ask(server)

    wait_for(lambda: "Torch worker started." in server.log("model_log.log"))
    wait_for(lambda: '"POST /predictions/echo HTTP/1.1" 200' in server.logs())


def test_the_log_is_not_duplicated_in_the_console_log(server: Server) -> None:
    assert "org.pytorch.serve" not in server.log("console.log")


def test_models_cannot_be_registered_over_http(server: Server) -> None:
    evil = f"{server.management_url}/models?url=http://127.0.0.1:9/evil.mar"

    answer = httpx.post(evil, timeout=60)

    assert answer.status_code == 405


def test_all_ports_are_on_the_loopback_interface(server: Server) -> None:
    listening = psutil.Process(server.pid).net_connections()

    addresses = {each.laddr.ip for each in listening if each.status == psutil.CONN_LISTEN}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_metrics_are_exported_for_prometheus(server: Server) -> None:
    ask(server)

    assert "ts_inference_requests_total" in httpx.get(server.metrics_url, timeout=60).text


def test_a_server_is_found_by_its_work_folder(server: Server) -> None:
    assert Server.of(server.workdir) == server


def test_a_port_in_use_is_an_error_before_the_server_starts(server: Server, store: Path) -> None:
    ports = replace(server.ports, inference=server.ports.grpc_inference)

    with pytest.raises(PortInUse, match=f"Port {server.ports.grpc_inference} is in use"):
        TorchServe(server.workdir, model_store=store, ports=ports).start()

    assert ask(server).is_success


def test_several_servers_can_run_and_stop_leaves_no_processes_or_files(
    server: Server, store: Path, tmp_path: Path
) -> None:
    with TorchServe(tmp_path, model_store=store, models={"echo": "echo.mar"}) as second:
        assert ask(second).is_success
        processes = group_members(second.pid)

    assert len(processes) == 4
    assert not group_members(second.pid)
    assert not second.scratch.exists()
    assert Server.of(tmp_path) is None
    assert ask(server).is_success


def test_the_error_of_a_model_that_does_not_load_is_reported(tmp_path: Path) -> None:
    write_archive(tmp_path, "broken", BROKEN)

    with pytest.raises(ModelsFailed, match=r"broken did not load: ValueError: .* did you mean"):
        TorchServe(tmp_path / "work", model_store=tmp_path).start()

    assert Server.of(tmp_path / "work") is None


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (KILLED, "its worker was ended by SIGKILL"),
        (SLOW, "it did not load within the startupTimeout"),
    ],
)
def test_the_end_of_a_worker_without_an_error_is_reported(
    handler: str, reason: str, tmp_path: Path
) -> None:
    write_archive(tmp_path, "broken", handler, "startupTimeout: 2\n")

    with pytest.raises(ModelsFailed, match=f"broken did not load: {reason}"):
        TorchServe(tmp_path / "work", model_store=tmp_path).start()


def test_a_setting_that_java_rejects_is_reported(store: Path, tmp_path: Path) -> None:
    wrong = {"vmargs": "-Xnonsense"}

    with pytest.raises(ServerFailed, match="Unrecognized option: -Xnonsense"):
        TorchServe(tmp_path, model_store=store, config_overrides=wrong).start()


def test_the_keys_of_a_server_that_was_killed_are_not_read(store: Path, tmp_path: Path) -> None:
    expired = {"key": "old", "expiration time": "2020-01-01T00:00:00Z"}
    keys = {"inference": expired, "management": expired, "API": {"key": "api"}}
    (tmp_path / "key_file.json").write_text(json.dumps(keys), encoding="utf-8")
    with TorchServe(tmp_path, model_store=store) as running:
        assert ask(running).is_success


def test_start_times_out(store: Path, tmp_path: Path) -> None:
    with pytest.raises(NotReadyInTime, match="echo did not answer within 0 s"):
        TorchServe(tmp_path, model_store=store, timeout=0).start()


def test_the_key_of_a_server_holds_for_every_way_in(tmp_path: Path, keys: Path) -> None:
    """The start, the management API and a rollout."""
    store = tmp_path / "store"
    store.mkdir()
    write_archive(store, "echo@1.0", ECHO, key=keys / "own.pem")
    served = TorchServe(
        tmp_path / "work",
        model_store=store,
        public_key=keys / "own.pub",
        config_overrides={"enable_model_api": "true"},
    )
    with served as server:
        (store / "echo@1.0.mar").write_bytes(b"")
        write_archive(store, "echo@2.0", ECHO)
        write_archive(store, "echo@3.0", ECHO, key=keys / "own.pem")
        for url in ("echo@2.0.mar", str(store / "echo@2.0.mar"), "../../store/echo@2.0.mar"):
            parameters = {"url": url, "initial_workers": "1", "synchronous": "true"}
            response = httpx.post(f"{server.management_url}/models", params=parameters, timeout=60)
            assert response.is_client_error, response.text
        rollout = Rollout(
            "echo",
            store,
            server.inference_url,
            server.management_url,
            server.metrics_url,
            Tokens(None, server.management_url),
            signed=server.signed_store(store),
        )
        with refused(UntrustedArchive):
            rollout.to("2.0", sample={})
        rollout.to("3.0", sample={}, requests=1, watch=0, retire=True)
        assert list(rollout.versions()) == ["3.0"]
        assert ask(server).json()["folder"].startswith(str(server.scratch))
        found = Server.of(tmp_path / "work")
        assert found and found.signed_store(store) == server.signed_store(store)
        assert [path.name for path in (server.scratch / "signed").iterdir()] == ["echo@3.0"]
    assert not server.scratch.exists()


def test_an_archive_without_the_signature_of_the_key_is_not_served(
    store: Path, tmp_path: Path, keys: Path
) -> None:
    with refused(UntrustedArchive):
        TorchServe(tmp_path, model_store=store, public_key=keys / "own.pub").start()
    assert Server.of(tmp_path) is None
