"""A container is configured by its environment alone, as those of other clouds are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from hf_serve.handlers.errors import WrongConfig
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.container import ContainerSettings, NoModelNamed
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import free_ports
from tests import tiny
from tests.e2e.asking import CLIENT
from tests.sentences import refused
from tests.standins.archives import write_yaml
from tests.standins.checkpoints import write_checkpoint
from tests.standins.hub import LocalHub
from tests.waiting import wait_for

SECONDS = 240
MODEL = {"HF_MODEL_ID": "org/name"}
PREDICT, HEALTH = "/v1/endpoints/1/deployedModels/2:predict", "/v1/endpoints/1/deployedModels/2"
VERTEX = {"AIP_PREDICT_ROUTE": PREDICT, "AIP_HEALTH_ROUTE": HEALTH}
FILM = "A lovely film."


def test_a_model_of_the_hub_with_nothing_else_is_served_at_port_8080() -> None:
    settings = ContainerSettings.read(MODEL)
    assert (settings.models, settings.task, settings.revision) == (("org/name",), "", "")
    assert (settings.host, settings.port) == ("0.0.0.0", 8080)
    assert (settings.predict_route, settings.health_route) == ("", "")
    assert settings.server_options[-2:] == ["--predict-route", "/predict"]


def test_sagemakers_variables_name_port_and_revision() -> None:
    environment = {"HF_MODEL_REVISION": "v1", "SAGEMAKER_BIND_TO_PORT": "9000", "SM_NUM_GPUS": "0"}
    settings = ContainerSettings.read({**MODEL, **environment})
    assert (settings.revision, settings.port) == ("v1", 9000)


def test_vertex_ais_variables_name_port_and_routes() -> None:
    settings = ContainerSettings.read({**MODEL, **VERTEX, "AIP_HTTP_PORT": "7080", "PORT": "1"})
    assert settings.port == 7080
    assert settings.server_options[-4:] == ["--predict-route", PREDICT, "--health-route", HEALTH]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["config.json", "model.safetensors"], [""]),
        (["a.mar", "b.mar", "notes.txt"], ["a.mar", "b.mar"]),
        (["a.yaml", "calibration.jsonl"], ["a.yaml"]),
        (["config.json", "params.yaml"], [""]),
        (["MAR-INF/MANIFEST.json", "model-config.yaml", "handler.py"], [""]),
    ],
    ids=["checkpoint", "archives", "yaml", "checkpoint with another YAML", "unpacked archive"],
)
@pytest.mark.parametrize("named", [True, False], ids=["HF_MODEL_DIR", "mounted"])
def test_a_folder_has_a_checkpoint_archives_or_yaml_files(
    files: list[str], expected: list[str], named: bool, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    environment = {"HF_MODEL_DIR": str(tmp_path)} if named else {}
    settings = ContainerSettings.read(environment, ["/nowhere", str(tmp_path)])
    assert settings.models == tuple(str(tmp_path / name) for name in expected)


@pytest.mark.parametrize("name", ["handler.py", "code/inference.py"])
def test_code_that_other_containers_run_is_not_left_out_in_silence(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    for each in ("config.json", name):
        (tmp_path / each).touch()
    with refused(WrongConfig, str(tmp_path), name, "handler.custom"):
        ContainerSettings.read({"SM_MODEL_DIR": str(tmp_path)}, ["/nowhere"])
    (tmp_path / "own.yaml").write_text("handler: {}", encoding="utf-8")
    settings = ContainerSettings.read({"SM_MODEL_DIR": str(tmp_path)}, ["/nowhere"])
    assert settings.models == (str(tmp_path / "own.yaml"),)


def test_an_id_is_served_where_the_folder_for_its_files_is_empty(tmp_path: Path) -> None:
    environment = {**MODEL, "HF_MODEL_DIR": str(tmp_path)}
    assert ContainerSettings.read(environment).models == ("org/name",)
    (tmp_path / "config.json").touch()
    with refused(WrongConfig, "HF_MODEL_DIR", "HF_MODEL_ID"):
        ContainerSettings.read(environment)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HF_MODEL_DIR": "/nowhere"}, ["HF_MODEL_DIR", "/nowhere"]),
        ({**MODEL, "AIP_STORAGE_URI": "gs://bucket/model"}, ["AIP_STORAGE_URI", "gs://bucket"]),
        ({**MODEL, "HF_TRUST_REMOTE_CODE": "1"}, ["HF_TRUST_REMOTE_CODE"]),
        ({**MODEL, "SAGEMAKER_PROGRAM": "inference.py"}, ["SAGEMAKER_PROGRAM", "inference.py"]),
        ({**MODEL, "AIP_HTTP_PORT": "http"}, ["AIP_HTTP_PORT", "65535"]),
        ({**MODEL, "SAGEMAKER_BIND_TO_PORT": "65536"}, ["SAGEMAKER_BIND_TO_PORT"]),
        ({**MODEL, "AIP_HEALTH_ROUTE": "health"}, ["AIP_HEALTH_ROUTE", "/"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    environment: dict[str, str], words: list[str]
) -> None:
    with refused(WrongConfig, *words):
        ContainerSettings.read(environment)


def test_without_a_model_the_ways_to_name_one_are_listed() -> None:
    with refused(NoModelNamed, "HF_MODEL_ID", "HF_MODEL_DIR", "/opt/ml/model"):
        ContainerSettings.read({"HF_TASK": "text-classification"})


@pytest.mark.nightly
def test_an_unknown_task_is_refused_before_anything_is_downloaded(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hf_serve.scripts.container"],
        cwd=tmp_path,
        env=environment_of(**MODEL, HF_TASK="tea-making", HF_ENDPOINT="http://127.0.0.1:9"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("HF_TASK: is tea-making") and "fill_mask" in done.stderr


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start a container's program with an environment; returns its URL."""
    processes = []

    def started(**variables: str) -> str:
        port = free_ports().inference
        environment = environment_of(HF_SERVE_HOST="127.0.0.1", AIP_HTTP_PORT=str(port))
        process = subprocess.Popen(
            [sys.executable, "-m", "hf_serve.scripts.container"],
            cwd=tmp_path,
            env=environment | variables,
        )
        processes.append(process)
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: process.poll() is not None or _is_ready(url), SECONDS)
        return url

    yield started
    for process in processes:
        process.terminate()
        process.wait(60)


def environment_of(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    return {**kept, "PYTHONPATH": str(ROOT), **variables}


def _is_ready(url: str) -> bool:
    try:
        return CLIENT.get(f"{url}/ping").is_success
    except httpx.TransportError:
        return False


@pytest.mark.server
def test_an_archive_answers_at_the_routes_of_each_cloud(
    start: Callable[..., str], tmp_path: Path
) -> None:
    checkpoint = tiny.write(tmp_path / "checkpoint", "sequence_classification")
    config = write_yaml(tmp_path / "film.yaml", checkpoint, mode="sequence_classification")
    pack(config, export_path=tmp_path / "store", checked=False)
    url = start(HF_MODEL_DIR=str(tmp_path / "store"), **VERTEX)
    (expected,) = CLIENT.post(url, json={"inputs": [FILM]}).json()
    for path, body, right in (
        ("/predict", {"inputs": [FILM]}, [expected]),
        ("/invocations", {"inputs": [FILM]}, [expected]),
        (PREDICT, {"instances": [FILM]}, {"predictions": [expected]}),
    ):
        response = CLIENT.post(url + path, json=body)
        assert (response.status_code, response.json()) == (200, right), path
    for path in ("/health", "/ping", HEALTH):
        assert CLIENT.get(url + path).status_code == 200, path
    assert CLIENT.post(url + PREDICT, json={"instances": 5}).status_code == 400


@pytest.mark.nightly
@pytest.mark.openvino
def test_a_model_of_the_hub_is_downloaded_packed_and_served(
    start: Callable[..., str], hub: LocalHub, tmp_path: Path
) -> None:
    hub.push("org/other", write_checkpoint(tmp_path / "other"))
    url = start(
        HF_ENDPOINT=hub.url,
        HF_MODEL_ID="org/other",
        HF_TASK="text-classification",
        HF_HUB_TOKEN="secret",
    )
    assert CLIENT.post(f"{url}/invocations", json={"inputs": [FILM]}).json()[0]["label"]
