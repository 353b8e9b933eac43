"""Rollouts with a stand-in for TorchServe's APIs; `tests/e2e/test_rollout.py` has the real ones."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hf_serve.scripts.archives.model_store import newest, read_defaults
from hf_serve.scripts.serving.rollout import Rollout, RolloutFailed
from hf_serve.scripts.serving.tokens import Tokens, WrongKeyFile
from tests.sentences import Sentence, refused

SAMPLE = {"inputs": "A fine film"}


@dataclass
class StandIn:
    """Versions of a model, and the calls that change them.

    Attributes:
        broken: versions that answer with status 500.
        unloadable: versions that cannot be registered.
        allows: whether the management API registers models.
        counts: whether requests are counted.
        loyal: how many requests clients send to a version by its number between two looks.
    """

    default: str = "1.0"
    versions: list[str] = field(default_factory=lambda: ["1.0"])
    broken: set[str] = field(default_factory=set)
    unloadable: set[str] = field(default_factory=set)
    allows: bool = True
    calls: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    counts: bool = True
    loyal: dict[str, int] = field(default_factory=dict)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, method = request.url.path, request.method
        if path == "/metrics":
            return httpx.Response(200, text=self._metrics() if self.counts else "")
        if path.startswith("/predictions"):
            version = path.removeprefix("/predictions/m").strip("/") or self.default
            self.asked.append(version)
            return httpx.Response(500 if version in self.broken else 200, json={})
        if method != "GET":
            self.calls.append(f"{method} {path}")
        parts = path.removeprefix("/models").strip("/").split("/")
        if parts == [""] and method == "GET":
            return httpx.Response(200, json={"models": [{"modelName": "m"}]})
        if method == "GET" and parts[0] != "m":
            return httpx.Response(404, json={"message": f"Model not found: {parts[0]}"})
        return self._manage(method, parts, request)

    def _metrics(self) -> str:
        """Return the counters; those of another model, and without a version, grow as well."""
        self.asked += [version for version, count in self.loyal.items() for _ in range(count)]
        own = {version: self.asked.count(version) for version in self.asked}
        others = [("n", "1.0", len(self.asked) * 2), ("m", "default", len(self.asked) * 3)]
        return "".join(
            f'ts_inference_requests_total{{model_name="{model}",model_version="{version}"'
            f',hostname="vm",}} {count}.0\n'
            for model, version, count in [*others, *(("m", *each) for each in own.items())]
        )

    def _manage(self, method: str, parts: list[str], request: httpx.Request) -> httpx.Response:
        if method == "POST":
            return self._register(request)
        if method == "PUT":
            self.default = parts[1]
        elif method == "DELETE":
            self.versions.remove(parts[1])
        elif parts[1:] == ["all"]:
            return httpx.Response(200, json=[{"modelVersion": each} for each in self.versions])
        found = {"modelVersion": self.default, "minWorkers": 2, "workers": [{"status": "READY"}]}
        return httpx.Response(200, json=[{**found, "customizedMetadata": {"sample": SAMPLE}}])

    def _register(self, request: httpx.Request) -> httpx.Response:
        if not self.allows:
            return httpx.Response(405, json={"message": "Requested method is not allowed"})
        version = request.url.params["url"].removeprefix("m@").removesuffix(".mar")
        if version in self.unloadable:
            return httpx.Response(500, json={"message": "Failed to start workers"})
        assert request.url.params["initial_workers"] == "2"
        self.versions.append(version)
        return httpx.Response(200, json={})


@pytest.fixture
def server() -> StandIn:
    return StandIn()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def rollout(server: StandIn, said: list[str], tmp_path: Path) -> Rollout:
    for version in ("1.0", "2.0"):
        (tmp_path / f"m@{version}.mar").touch()
    client = httpx.Client(transport=httpx.MockTransport(server))
    url = "http://127.0.0.1"
    metrics = f"{url}/metrics"
    return Rollout("m", tmp_path, url, url, metrics, Tokens(None, url), said.append, client)


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_serve.scripts.serving.rollout.MIN_LOOK", 0.01)


def test_a_version_is_tried_before_it_is_the_default(rollout: Rollout, server: StandIn) -> None:
    rollout.to("2.0", requests=3, watch=0.01)
    assert server.asked[:3] == ["2.0"] * 3
    assert server.calls == ["POST /models", "PUT /models/m/2.0/set-default"]
    assert server.versions == ["1.0", "2.0"]
    assert read_defaults(rollout.store) == {"m": "2.0"}


def test_the_former_version_is_unloaded_if_asked_for(rollout: Rollout, server: StandIn) -> None:
    rollout.to("2.0", watch=0, retire=True)
    assert server.versions == ["2.0"]


def test_a_version_that_clients_ask_for_stays_loaded(rollout: Rollout, server: StandIn) -> None:
    server.loyal = {"1.0": 3}
    with refused(
        RolloutFailed, "m 1.0", 3, "/models/m/invoke?path=/v1/", "scripts/rollout.py retire m 1.0"
    ):
        rollout.to("2.0", watch=0, retire=True)
    assert (server.default, server.versions) == ("2.0", ["1.0", "2.0"])
    server.loyal = {"2.0": 3}
    rollout.retire("1.0", watch=0)
    assert server.versions == ["2.0"]


def test_a_version_whose_requests_are_not_counted_stays_loaded(
    rollout: Rollout, server: StandIn
) -> None:
    server.counts = False
    with refused(RolloutFailed, "m 1.0", "metrics_mode=prometheus", "--force"):
        rollout.to("2.0", watch=0, retire=True)
    assert server.versions == ["1.0", "2.0"]
    with refused(RolloutFailed, "m 2.0"):
        rollout.retire("2.0", force=True)
    rollout.retire("1.0", force=True)
    assert server.versions == ["2.0"]


def test_a_dry_run_changes_nothing(rollout: Rollout, server: StandIn, said: list[str]) -> None:
    rollout.to("2.0", dry_run=True)
    assert not server.calls and not server.asked and not read_defaults(rollout.store)
    assert said[0] == Sentence("m@2.0.mar", 2, "1.0")


def test_a_version_that_fails_is_unloaded_again(rollout: Rollout, server: StandIn) -> None:
    server.broken = {"2.0"}
    with refused(RolloutFailed, "m 2.0", 1, 20, 500):
        rollout.to("2.0")
    assert (server.default, server.versions) == ("1.0", ["1.0"])


def test_a_version_that_fails_as_the_default_is_taken_back(
    rollout: Rollout, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.broken = {"2.0"}
    monkeypatch.setattr(Rollout, "_try", lambda *_: None)
    with refused(RolloutFailed, 500, "1.0"):
        rollout.to("2.0", watch=1)
    assert (server.default, server.versions) == ("1.0", ["1.0"])
    assert read_defaults(rollout.store) == {"m": "1.0"}


def test_what_cannot_be_rolled_out_is_said(rollout: Rollout, server: StandIn) -> None:
    with refused(RolloutFailed, "m@3.0.mar"):
        rollout.to("3.0")
    with refused(RolloutFailed, "no model mm", "there are m"):
        replace(rollout, model="mm").to("3.0")
    for of_unloaded in (rollout.back, rollout.retire):
        with refused(RolloutFailed, "2.0 is not loaded", "to m 2.0"):
            of_unloaded("2.0")
    with refused(RolloutFailed, "m 1.0"):
        rollout.to("1.0")
    server.unloadable = {"2.0"}
    with refused(RolloutFailed, "m 2.0", "Failed to start workers"):
        rollout.to("2.0")
    server.allows = False
    with refused(RolloutFailed, "enable_model_api=true"):
        rollout.to("2.0")
    assert server.default == "1.0"


def test_versions_are_compared_by_their_numbers() -> None:
    assert newest(["1.9", "1.10", "1.10-rc1"][:2]) == "1.10"
    assert newest(["2", "10", "9.5"]) == "10"


def key_file(path: Path, minutes: float) -> Path:
    expires = (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    entry: dict[str, Any] = {"key": "old", "expiration time": expires.replace("Z", "123Z")}
    keys = {"inference": entry, "management": entry, "API": {"key": "api"}}
    path.write_text(json.dumps(keys), encoding="utf-8")
    return path


def test_a_token_is_renewed_before_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, renewed = tmp_path / "key_file.json", list[Any]()

    def get(url: str, **options: Any) -> httpx.Response:
        renewed.append((url, options["params"], options["headers"]))
        key_file(path, 60)
        return httpx.Response(200)

    monkeypatch.setattr("hf_serve.scripts.serving.tokens.httpx.get", get)
    tokens = Tokens(path, "http://127.0.0.1:8081")
    key_file(path, 60)
    assert tokens.header("inference") == {"Authorization": "Bearer old"}
    assert not renewed
    key_file(path, 1)
    tokens.header("inference")
    api = {"Authorization": "Bearer api"}
    assert renewed == [("http://127.0.0.1:8081/token", {"type": "inference"}, api)]


def test_a_key_file_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "key_file.json"
    path.touch()
    writer = threading.Timer(0.2, key_file, [path, 60])
    writer.start()
    tokens = Tokens(path, "", write_seconds=60)
    assert tokens.header("management") == {"Authorization": "Bearer old"}
    writer.join()


def test_a_key_file_without_keys_is_named(tmp_path: Path) -> None:
    for content in ("", "{}", "[]"):
        (tmp_path / "key_file.json").write_text(content)
        with refused(WrongKeyFile, "key_file.json", "management"):
            Tokens(tmp_path / "key_file.json", "", write_seconds=0).header("management")
    assert Tokens(None, "").header("management") == {}
