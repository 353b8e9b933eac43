"""`run_model.py`: models that are served by their names alone."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from hf_serve.demo_models.minilm import minilm
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.config.model_config import CONFIG_FILE, ModelConfig
from hf_serve.handlers.errors import KitError, WrongCheckpoint
from hf_serve.hosts.fork_server.start import VARIABLE
from hf_serve.scripts import create_archive, download_models, run_model, serve
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS, FormatName
from hf_serve.scripts.archives.manifest import manifest
from hf_serve.scripts.archives.model_store import MANIFEST, list_archives
from hf_serve.scripts.hub.catalogue import read_catalogue
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.hub.model_check import check_model
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.run_model import NotRunnable, archive_of, example_of, name_of, write_yaml
from hf_serve.scripts.serving.ports import Ports, free_ports, require_distinct
from hf_serve.scripts.serving.processes import group_members, started_at
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.workdirs import RUN_FOLDER, SERVER_FOLDER
from tests.catalogue.checkpoints import write
from tests.checkout import copy_repository
from tests.overlay import activated, make_overlay
from tests.sentences import Sentence, refused
from tests.serving import Served
from tests.standins.archives import SLOW, write_archive
from tests.standins.checkpoints import write_checkpoint
from tests.standins.hub import LocalHub
from tests.waiting import wait_for

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def found(hub: LocalHub) -> Any:
    return check_model("org/name", None, Hub(hub.url))


def test_the_yaml_of_a_model_of_the_hub_names_its_mode_and_its_commit(
    found: Any, tmp_path: Path, hub: LocalHub
) -> None:
    path = write_yaml(found, tmp_path)
    assert path == tmp_path / "name.yaml"
    assert "because its class is DistilBertForSequenceClassification.\n" in path.read_text()
    assert yaml.safe_load(path.read_text()) == {
        "handler": {
            "mode": "sequence_classification",
            "model_name": "org/name",
            "revision": hub.repositories["org/name"].resolve("main"),
            "save_mode": "auto",
            "dtype": "auto",
        }
    }
    ModelConfig.read(path)


def test_the_yaml_of_a_folder_has_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "My model")
    monkeypatch.chdir(tmp_path)
    path = write_yaml(check_model("My model", None, Hub("http://127.0.0.1:9")), tmp_path)
    assert path.name == "My-model.yaml"
    assert ModelConfig.read(path).handler.model_name == str(tmp_path / "My model")


def test_an_export_keeps_the_checkpoint_for_explanations(tmp_path: Path) -> None:
    found = check_model(str(minilm()), None, Hub("http://127.0.0.1:9"))
    handler = ModelConfig.read(write_yaml(found, tmp_path)).handler
    assert (handler.mode, handler.explain_with_checkpoint) == ("sentence_embedding", True)


def test_an_edited_yaml_stays(found: Any, tmp_path: Path) -> None:
    path = write_yaml(found, tmp_path)
    path.write_text(path.read_text() + "batchSize: 4\n")
    assert ModelConfig.read(write_yaml(found, tmp_path)).batchSize == 4


def test_a_name_of_the_catalogue_stands_for_its_model(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.push(MINILM, write(read_catalogue()["all-minilm"], tmp_path / "checkpoint"))
    monkeypatch.setattr(run_model, "Hub", lambda: Hub(hub.url))
    monkeypatch.setattr(download_models, "main", lambda _: None)
    monkeypatch.setattr(create_archive, "main", lambda *_, **__: None)
    archive = archive_of("all-minilm", None, None, tmp_path, tmp_path)
    assert archive.name == "all-MiniLM-L6-v2.mar"
    handler = ModelConfig.read(tmp_path / "all-MiniLM-L6-v2.yaml").handler
    assert (handler.model_name, handler.mode) == (MINILM, "sentence_embedding")


def test_what_the_catalogue_refuses_is_refused_without_a_hub(tmp_path: Path) -> None:
    with refused(NotRunnable, "jinaai/jina-embeddings-v3", "own code"):
        archive_of("jina-embeddings-v3", None, None, tmp_path, tmp_path)


def test_two_models_of_one_name_are_told_apart(found: Any, hub: LocalHub, tmp_path: Path) -> None:
    write_yaml(found, tmp_path)
    hub.push("other/name", write_checkpoint(tmp_path / "other"))
    with refused(NotRunnable, "name.yaml", "org/name", "other/name", "--folder"):
        write_yaml(check_model("other/name", None, Hub(hub.url)), tmp_path)


def test_a_model_that_is_not_served_is_refused(hub: LocalHub, tmp_path: Path) -> None:
    found = check_model("org/name", None, Hub(hub.url), "question_answering")
    with refused(NotRunnable, "org/name"):
        write_yaml(found, tmp_path)
    assert not list(tmp_path.iterdir())


def test_names_are_parts_of_urls(tmp_path: Path) -> None:
    names = ["org/All MiniLM (v2)", "name", "a/b/..", str(tmp_path)]
    assert [name_of(each) for each in names] == ["All-MiniLM-v2", "name", "model", tmp_path.name]


@pytest.mark.parametrize(
    ("mode", "part"),
    [
        ("fill_mask", "application/json"),
        ("image_classification", "-T image-file"),
        ("automatic_speech_recognition", "-T audio-file"),
        ("visual_question_answering", "question"),
    ],
)
def test_a_command_shows_how_a_model_is_asked(mode: str, part: str) -> None:
    command = example_of("m", HandlerSection(mode=mode), "http://127.0.0.1:8000")
    assert command.startswith("curl http://127.0.0.1:8000/predictions/m")
    assert part in command


def test_a_command_asks_an_adapter() -> None:
    handler = HandlerSection(mode="text_generation", adapters={"french": "f", "dutch": "d"})
    assert '"adapter_id": "french"' in example_of("m", handler, "http://127.0.0.1:8000")


def _write_packed(path: Path, config: object = None) -> Path:
    manifest = {
        "model": {
            "modelName": "m",
            "modelVersion": "1.0",
            "handler": "h.py",
            "configFile": CONFIG_FILE,
        }
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        packed.writestr(CONFIG_FILE, yaml.safe_dump(config or ARCHIVED))
    return path


def test_a_command_asks_for_all_labels_of_a_model_of_several(tmp_path: Path) -> None:
    handler = {"handler": {"mode": "sequence_classification", "model_name": "org/name"}}
    archive = _write_packed(tmp_path / "m.mar", handler)
    assert "top_k" not in run_model._examples([archive], "http://127.0.0.1:8000", None)["m"]
    with zipfile.ZipFile(archive, "a") as packed:
        packed.writestr("config.json", '{"problem_type": "multi_label_classification"}')
    examples = run_model._examples([archive], "http://127.0.0.1:8000", None)
    assert '"parameters": {"top_k": null}' in examples["m"]


ARCHIVED = {"handler": {"mode": "fill_mask", "model_name": "org/name"}}


@pytest.mark.parametrize("keys", [None, "my keys.txt"])
def test_a_model_has_a_command_wherever_its_yaml_is(tmp_path: Path, keys: str | None) -> None:
    archive = _write_packed(tmp_path / "m.mar")
    file = Path(keys) if keys else None
    examples = run_model._examples([archive], "http://127.0.0.1:8000", file)
    assert "curl http://127.0.0.1:8000/predictions/m" in examples["m"]
    assert ("$(head -n 1 'my keys.txt')" in examples["m"]) is bool(keys)


@pytest.mark.parametrize("archive_format", ["mar", "tgz", "no-archive"])
def test_an_archive_of_each_format_is_brought_to_the_store_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive_format: FormatName
) -> None:
    parts: dict[str, Path | bytes] = {
        str(MANIFEST): manifest("m", "1.0"),
        CONFIG_FILE: b"handler: {}",
    }
    store = tmp_path / "store"
    suffix = {"mar": ".mar", "tgz": ".tar.gz", "no-archive": ""}[archive_format]
    source = tmp_path / f"m{suffix}"
    ARCHIVE_FORMATS[archive_format].write(source, "m", parts, lambda _: None)
    for _ in range(2):
        archive = archive_of(str(source), None, None, tmp_path, store)
        assert archive == store / source.name and [*store.iterdir()] == [archive]
    assert list_archives(store) == {"m": source.name}
    if source.is_dir():
        monkeypatch.chdir(source)
        assert archive_of(".", None, None, tmp_path, store) == archive
    (other := store / f"m{'.tar.gz' if suffix == '.mar' else '.mar'}").touch()
    with refused(NotRunnable, str(other)):
        archive_of(str(source), None, None, tmp_path, store)
    other.unlink()
    archive.rename(tmp_path / "kept")
    copy = "copytree" if source.is_dir() else "copyfile"

    def interrupted(_: Path, target: Path) -> None:
        target.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, copy, interrupted)
    with pytest.raises(KeyboardInterrupt):
        archive_of(str(source), None, None, tmp_path, store)
    assert not [*store.iterdir()]


def test_a_model_whose_revision_is_not_there_is_refused_with_the_option(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_model, "Hub", lambda: Hub(hub.url))
    with refused(KitError, "org/name", "--revision"):
        archive_of("org/name", None, "none", tmp_path, tmp_path)


def test_an_archive_that_is_none_has_no_command(tmp_path: Path) -> None:
    (tmp_path / "m.mar").write_text("no archive")
    assert not run_model._examples([tmp_path / "m.mar"], "http://127.0.0.1:8000", None)


@pytest.fixture
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Serve a checkpoint by its folder alone; return the URL."""
    url_port, others = free_ports().inference, astuple(free_ports())
    names = ("torchserve", "management", "metrics", "grpc", "grpc-management")
    ports = [
        part for name, port in zip(names, others, strict=True) for part in (f"--{name}-port", port)
    ]
    checkpoint = shutil.copytree(minilm(), tmp_path / "minilm")
    command: list[Any] = [
        sys.executable,
        ROOT / "scripts" / "run_model.py",
        checkpoint,
        "--port",
        url_port,
    ]
    command += ["--host", request.param, *ports]
    process = subprocess.Popen(
        list(map(str, command)), cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    try:
        url = f"http://127.0.0.1:{url_port}"
        _wait_for(url, process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        stop = [sys.executable, str(ROOT / "scripts" / "serve.py"), "stop"]
        subprocess.run([*stop, "--workdir", str(tmp_path / "hf-serve" / "server")], check=True)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() in (None, 0):
        try:
            models = httpx.get(f"{url}/v1/models", trust_env=False).json()["data"]
            if models and models[0].get("state") == "ready":
                return
        except (httpx.TransportError, ValueError):
            pass
        time.sleep(0.2)
    raise AssertionError(f"exit code {process.poll()}")


@pytest.mark.server
def test_a_name_of_the_catalogue_is_downloaded_packed_and_served(
    hub: LocalHub, tmp_path: Path
) -> None:
    entry = read_catalogue()["bge"]
    folder = write(entry, tmp_path / "published")
    hub.push(entry.models[0], folder)
    copy, port = tmp_path / "copy", free_ports().inference
    copy_repository(copy)
    overlay = make_overlay(tmp_path / "venv", copy)
    process = subprocess.Popen(
        [overlay / "bin" / "hf-serve", "run", "bge", "--host", "asgi", "--port", str(port)],
        cwd=tmp_path,
        env={**activated(overlay), "HF_ENDPOINT": hub.url},
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, process)
        text, query = "A fine film.", {"prompt_name": "query"}
        path, body = f"{url}/predictions/bge-small-en-v1.5", {"inputs": text, "parameters": query}
        found = httpx.post(path, json=body, trust_env=False, timeout=60).json()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    model = Served(folder, "sentence_embedding", **entry.handler)
    # The export has 8 bits, and its vectors are of length 1, too.
    assert np.dot(found, model.ask(text, **query)) > 0.95


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.parametrize("running", ["torchserve", "asgi"], indirect=True)
def test_a_folder_is_served_at_one_url(running: str) -> None:
    body = {"model": "minilm", "input": "A fine film."}
    answer = httpx.post(f"{running}/v1/embeddings", json=body, trust_env=False)
    assert len(answer.json()["data"][0]["embedding"]) == 384
    native = httpx.post(
        f"{running}/predictions/minilm",
        content=json.dumps({"inputs": "A fine film."}),
        headers={"Content-Type": "application/json"},
        trust_env=False,
    )
    assert native.status_code == 200


def test_an_unknown_mode_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="fill_mask"):
        run_model.main(["org/name"], mode="fill_maks", folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_weights_that_are_pickles_are_served_where_they_are_allowed(tmp_path: Path) -> None:
    film, store = str(write_checkpoint(tmp_path / "film", pickle=True)), tmp_path / "model_store"
    mode = "sequence_classification"
    with refused(KitError, "pytorch_model.bin", "--allow-pickle"):
        run_model.archive_of(film, mode, None, tmp_path, store)
    assert run_model.archive_of(film, mode, None, tmp_path, store, allow_pickle=True).is_file()
    assert ModelConfig.read(tmp_path / "film.yaml").handler.allow_pickle


def test_what_is_no_model_leaves_no_folder(tmp_path: Path) -> None:
    weights = write_checkpoint(tmp_path / "model") / "model.safetensors"
    folder = tmp_path / "new"
    with refused(WrongCheckpoint, weights, "folder"):
        run_model.archive_of(str(weights), None, None, folder, folder / "model_store")
    assert not folder.exists()


@pytest.mark.server
def test_the_commands_know_a_server_without_torchserve(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "film")
    (tmp_path / "broken.mar").write_text("no archive")
    url = f"http://127.0.0.1:{(port := free_ports().inference)}"

    def command(*arguments: object) -> list[str]:
        return [sys.executable, "-m", "hf_serve", *map(str, arguments), "--folder", "its folder"]

    def told(*arguments: object) -> tuple[int, str]:
        done = subprocess.run(
            command(*arguments), cwd=tmp_path, capture_output=True, text=True, env=environment
        )
        return done.returncode, done.stdout + done.stderr

    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = ["run", "film", "broken.mar", "--mode", "sequence_classification", "--host", "asgi"]
    process = subprocess.Popen(
        command(*run, "--port", port), cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _answers(f"{url}/v1/models"), 120)
        code, said = told("status")
        assert code == 1 and "film is ready" in said
        shown = re.search(r"`(.*logs broken.*)`", said)
        assert shown and shlex.split(shown[1])[-2:] == ["--folder", "its folder"]
        assert "broken.mar did not load" in told("logs", "broken", "--problems")[1]
        assert "its folder" in told("run", "film", "--port", free_ports().inference)[1]
        assert told("stop") == (0, "The server without TorchServe has stopped.\n")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert told("status") == (1, "TorchServe is not running.\n")
    assert "did not load" in told("logs")[1]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.mark.server
def test_an_interrupt_while_it_starts_leaves_no_server(tmp_path: Path) -> None:
    write_archive(tmp_path, "slow", SLOW)
    names = ("torchserve", "management", "metrics", "grpc", "grpc-management")
    ports = [
        part
        for name, port in zip(names, astuple(free_ports()), strict=True)
        for part in (f"--{name}-port", str(port))
    ]
    command = [sys.executable, str(ROOT / "scripts" / "run_model.py"), "slow.mar", *ports]
    process = subprocess.Popen(
        [*command, "--port", str(free_ports().inference)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), VARIABLE: "off"},
        # A process in the background of a shell ignores it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    )
    workdir, deadline = tmp_path / RUN_FOLDER / SERVER_FOLDER, time.monotonic() + 120
    while (server := Server.of(workdir)) is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert server
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert not group_members(server.pid)


@pytest.mark.parametrize("suffix", [".yaml", ".mar"])
def test_two_files_of_one_name_are_refused_before_one_replaces_the_other(
    suffix: str, tmp_path: Path
) -> None:
    one, other = (tmp_path / name / f"film{suffix}" for name in "ab")
    for path in (one, other):
        path.parent.mkdir()
        path.touch()
    for models in ([str(one), str(other)], ["org/film", str(one)]):
        with refused(NotRunnable, *models):
            run_model._require_own_names(models)
    with refused(NotRunnable, f"none{suffix}"):
        run_model._require_own_names([f"none{suffix}"])
    run_model._require_own_names([str(one), str(one), "org/other", "org/other"])


def test_the_url_needs_a_port_that_torchserve_has_not(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        run_model.main(["org/name"], folder=tmp_path, port=8080)
    assert capsys.readouterr().err.strip() == Sentence(8080)
    with refused(KitError, 7070):
        require_distinct(Ports(management=7070), 8000)


def test_a_server_that_runs_is_stopped_first(tmp_path: Path) -> None:
    workdir = tmp_path / SERVER_FOLDER
    workdir.mkdir()
    started = started_at(os.getpid()) or 0.0
    Server(os.getpid(), started, {"minilm": "minilm.mar"}, Ports(), workdir, workdir).save()
    with refused(NotRunnable, "minilm", "stop", "--folder"):
        run_model._require_stopped(tmp_path)


def test_all_is_prepared_before_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is slow afterwards could be interrupted, and would leave a server that runs."""
    calls: list[str] = []

    def example(*_: object) -> str:
        calls.append("example")
        return "curl"

    monkeypatch.setattr(run_model, "example_of", example)
    monkeypatch.setattr(serve, "start", lambda **_: calls.append("start"))
    monkeypatch.setattr(
        run_model, "archive_of", lambda *given, **_: _write_packed(given[-1] / "m.mar")
    )
    run_model.main(["m"], port=free_ports().inference, folder=tmp_path / "run")
    assert calls == ["example", "start"]


def test_models_that_did_not_load_are_named_at_the_end_without_an_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = tmp_path / "run"
    workdir, names = folder / SERVER_FOLDER, ["good", "broken", "damaged"]

    def start(**_: object) -> None:
        workdir.mkdir(parents=True)
        models = {name: f"{name}.mar" for name in names[:2]}
        left_out = {"damaged": "It is no archive."}
        Server(1, 0.0, models, Ports(), workdir, workdir, left_out=left_out).save()

    monkeypatch.setattr(serve, "start", start)
    monkeypatch.setattr(Server, "is_ready", lambda _, name: name == "good")
    monkeypatch.setattr(
        run_model, "archive_of", lambda name, *given, **_: _write_packed(given[-1] / f"{name}.mar")
    )
    run_model.main(names, port=free_ports().inference, folder=folder)
    printed = capsys.readouterr()
    assert "predictions/good" in printed.out
    assert "broken" not in printed.out and "damaged" not in printed.out
    damaged, broken = printed.err.splitlines()
    assert damaged == Sentence("damaged", "status", "--folder")
    assert broken == Sentence("broken", "logs", "--folder")


def test_an_archive_beside_another_default_version_is_named(tmp_path: Path) -> None:
    archive = _write_packed(tmp_path / "m.mar")
    assert list(run_model._other_versions([archive], tmp_path)) == []
    (tmp_path / "m@2.0.mar").touch()
    (notice,) = run_model._other_versions([archive], tmp_path)
    assert notice == Sentence("m@2.0.mar", "m.mar", "1.0", "to m 1.0")
