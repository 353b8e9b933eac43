"""A new version of a model beside the old one, under load, with token authorization."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from hf_serve.scripts.archives.model_store import list_archives
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.serving.rollout import Rollout, RolloutFailed
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.tokens import Tokens
from hf_serve.scripts.serving.torchserve import TorchServe

pytestmark = pytest.mark.nightly

MODE = "sequence_classification"
SAMPLE = {"inputs": "A fine film"}
REGISTRATION = {"enable_model_api": "true", "disable_token_authorization": "false"}


@pytest.fixture(scope="module")
def store(checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions: two that work with other labels, and one whose handler fails on requests."""
    folder = tmp_path_factory.mktemp("versions")
    store = folder / "model_store"
    for version, labels in (("1.0", "old"), ("2.0", "new")):
        config = write_config(folder / version, checkpoint(MODE))
        names = folder / version / "index_to_name.json"
        names.write_text(json.dumps({"0": f"{labels} a", "1": f"{labels} b", "2": f"{labels} c"}))
        pack(config, version=version, versioned=True, export_path=store, extra_files=[names])
    broken = write_config(folder / "3.0", checkpoint(MODE), max_characters=1, health_check=False)
    pack(broken, version="3.0", versioned=True, export_path=store)
    return store


def write_config(folder: Path, model: Path, **handler: Any) -> Path:
    folder.mkdir()
    path = folder / "m.yaml"
    named = {"mode": MODE, "model_name": str(model), "dtype": "float32", **handler}
    path.write_text(yaml.safe_dump({"handler": named}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    (store / "default_versions.json").write_text('{"m": "1.0"}')
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(
        model_store=store, workdir=workdir, timeout=480, config_overrides=REGISTRATION
    ) as server:
        yield server


@pytest.fixture
def rollout(server: Server, store: Path) -> Rollout:
    tokens = Tokens(server.workdir / "key_file.json", server.management_url)
    return Rollout(
        "m", store, server.inference_url, server.management_url, server.metrics_url, tokens
    )


class Load:
    """Clients that send requests, by default to the default version, until the block ends."""

    def __init__(self, rollout: Rollout, path: str = "/predictions/m") -> None:
        self.answers = Counter[tuple[int, str]]()
        self._rollout, self._path, self._stopped = rollout, path, threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(4)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        headers = self._rollout.tokens.header("inference")
        url = f"{self._rollout.inference_url}{self._path}"
        with httpx.Client(timeout=60, trust_env=False, headers=headers) as client:
            while not self._stopped.is_set():
                answer = client.post(url, json=SAMPLE)
                label = answer.json()[0]["label"].split()[0] if answer.is_success else ""
                self.answers[answer.status_code, label] += 1


def test_a_version_becomes_the_default_and_the_former_one_again_without_a_failed_request(
    rollout: Rollout, store: Path
) -> None:
    with Load(rollout) as load:
        rollout.to("2.0", watch=2)
        assert rollout.default()["modelVersion"] == "2.0"
        assert list_archives(store) == {"m": "m@2.0.mar"}
        rollout.set_default("1.0")
    assert load.answers.keys() == {(200, "old"), (200, "new")}
    assert sorted(rollout.versions()) == ["1.0", "2.0"]
    assert list_archives(store) == {"m": "m@1.0.mar"}


def test_a_version_that_fails_never_becomes_the_default(rollout: Rollout) -> None:
    with Load(rollout) as load, pytest.raises(RolloutFailed, match="request 1 of 20 with status 4"):
        rollout.to("3.0", watch=2)
    assert load.answers.keys() == {(200, "old")}
    assert "3.0" not in rollout.versions()
    assert rollout.default()["modelVersion"] == "1.0"


def test_a_version_that_fails_as_the_default_is_taken_back(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rollout, "_try", lambda *_: None)
    with pytest.raises(RolloutFailed, match=r"as the default.* 1\.0 is the default again\."):
        rollout.to("3.0", sample=SAMPLE, watch=2)
    assert rollout.default()["modelVersion"] == "1.0"


def test_the_former_default_is_unloaded_once_no_client_asks_for_it(rollout: Rollout) -> None:
    with Load(rollout, "/predictions/m/1.0") as load, pytest.raises(RolloutFailed, match=r"m 1\.0"):
        rollout.to("2.0", watch=1, retire=True)
    assert load.answers.keys() == {(200, "old")}
    rollout.set_default("1.0")
    rollout.retire("2.0", watch=1)

    with Load(rollout) as load, Load(rollout, "/models/m/invoke?path=/") as below:
        rollout.to("2.0", watch=1, retire=True)
    assert {status for status, _ in load.answers + below.answers} == {200}
    assert rollout.versions() == ["2.0"]


def test_every_protocol_has_an_address_that_follows_the_default(rollout: Rollout) -> None:
    url = f"{rollout.inference_url}/models/m/invoke"
    headers = rollout.tokens.header("inference")
    options: Any = {"headers": headers, "trust_env": False, "timeout": 60}
    described = httpx.get(f"{url}?path=/v2/models/m", **options).json()
    assert described["versions"] == [rollout.default()["modelVersion"]]
    predicted = httpx.post(f"{url}?path=/predict", json=SAMPLE, **options).json()
    form = httpx.post(f"{url}?path=", files={"inputs": (None, "A fine film")}, **options).json()
    assert predicted[0]["label"] == form[0]["label"]


def test_a_call_without_a_token_is_refused_and_a_token_is_renewed(rollout: Rollout) -> None:
    url = f"{rollout.inference_url}/predictions/m"
    assert httpx.post(url, json=SAMPLE, trust_env=False).status_code == 400
    before = rollout.tokens.header("inference")
    rollout.tokens._renew("inference")
    after = rollout.tokens.header("inference")
    assert before != after
    statuses = [
        httpx.post(url, json=SAMPLE, headers=headers, trust_env=False).status_code
        for headers in (before, after)
    ]
    assert statuses == [400, 200]
