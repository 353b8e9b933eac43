from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hf_serve.handlers.errors import KitError, WrongConfig
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.hub.errors import (
    AccessDenied,
    CorruptFile,
    HubFailed,
    HubOffline,
    HubUnreachable,
    ModelNotFound,
    NotAHub,
    ProxyUnsupported,
    RevisionNotFound,
    UnsafeListing,
)
from tests.sentences import refused
from tests.standins.hub import LocalHub


@pytest.mark.parametrize("digits", [7, 40])
def test_a_revision_is_resolved_to_its_commit(hub: LocalHub, digits: int) -> None:
    commit = Hub(hub.url).snapshot("org/name", None).commit
    again = Hub(hub.url).snapshot("org/name", commit[:digits])
    assert len(commit) == 40
    assert (again.commit, again.files["config.json"].size > 0) == (commit, True)


def test_a_partial_download_is_resumed(hub: LocalHub, checkpoint: Path, tmp_path: Path) -> None:
    snapshot = Hub(hub.url).snapshot("org/name", None)
    weights, content = snapshot.files["model.safetensors"], checkpoint / "model.safetensors"
    weights.partial_in(tmp_path).write_bytes(content.read_bytes()[:1000])
    path = Hub(hub.url).fetch(snapshot, weights, tmp_path)
    assert hub.requests("model.safetensors")[0].range == "bytes=1000-"
    assert [path] == list(tmp_path.iterdir())
    assert path.read_bytes() == content.read_bytes()


def test_a_dropped_connection_is_resumed(hub: LocalHub, tmp_path: Path) -> None:
    hub.interrupt("config.json", after=10)
    snapshot = Hub(hub.url).snapshot("org/name", None)
    path = Hub(hub.url).fetch(snapshot, snapshot.files["config.json"], tmp_path)
    assert snapshot.files["config.json"].is_at(path)
    assert len(hub.requests("config.json")) == 2


def test_a_downloaded_file_is_not_requested_again(hub: LocalHub, tmp_path: Path) -> None:
    snapshot = Hub(hub.url).snapshot("org/name", None)
    for _ in range(2):
        Hub(hub.url).fetch(snapshot, snapshot.files["config.json"], tmp_path)
    assert len(hub.requests("config.json")) == 1


@pytest.mark.parametrize("arrived", [b"WEIGHTS", b"weig", b"weights and more"])
def test_a_file_with_wrong_content_or_size_is_deleted(tmp_path: Path, arrived: bytes) -> None:
    stored, here = tmp_path / "stored", tmp_path / "here"
    for folder in (stored, here):
        folder.mkdir()
    (stored / "model.safetensors").write_bytes(b"weights")
    with LocalHub({"org/name": stored}) as hub:
        snapshot = Hub(hub.url).snapshot("org/name", None)
        (stored / "model.safetensors").write_bytes(arrived)
        with refused(CorruptFile, "model.safetensors", "org/name"):
            Hub(hub.url).fetch(snapshot, snapshot.files["model.safetensors"], here)
    assert not list(here.iterdir())


OUTSIDE = [
    "../stolen.model",
    "a/../../stolen.model",
    "/stolen.model",
    "..\\stolen.model",
    "C:\\stolen.model",
    "C:stolen.model",
    "./stolen.model",
    "a//stolen.model",
    "nul\0.model",
    "line\nbreak.model",
    "\x1b[2Jscreen.model",
    "\ud800.model",
    "",
    "..",
    f"{'long' * 64}.model",
    5,
    None,
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_listing_with_a_name_that_is_no_path_below_its_root_is_refused(
    hub: LocalHub, checkpoint: Path, name: object
) -> None:
    hub.repositories["org/name"].add(name, checkpoint / "config.json")
    with refused(UnsafeListing, hub.url) as caught:
        Hub(hub.url).snapshot("org/name", None)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_name_may_be_as_long_as_file_systems_allow(hub: LocalHub, checkpoint: Path) -> None:
    longest, too_long = ("é" * 127 + letters for letters in ("a", "ab"))
    hub.repositories["org/name"].add(f"a/{longest}", checkpoint / "config.json")
    assert f"a/{longest}" in Hub(hub.url).snapshot("org/name", None).files
    hub.repositories["org/name"].add(f"a/{too_long}", checkpoint / "config.json")
    with pytest.raises(UnsafeListing):
        Hub(hub.url).snapshot("org/name", None)


@pytest.mark.parametrize(
    "announced",
    [
        {"size": -1},
        {"size": "12"},
        {"size": True},
        {"git_hash": "/../../../../../stolen"},
        {"git_hash": "zz" * 20},
        {"sha256": "../" * 20},
        {"sha256": 5},
    ],
)
def test_a_listing_with_impossible_sizes_or_hashes_is_refused(
    hub: LocalHub, checkpoint: Path, announced: dict[str, object]
) -> None:
    hub.repositories["org/name"].add("vocab.txt", checkpoint / "config.json", **announced)
    with pytest.raises(NotAHub):
        Hub(hub.url).snapshot("org/name", None)


def test_a_file_that_is_longer_than_announced_is_cut_off(hub: LocalHub, tmp_path: Path) -> None:
    endless, here = tmp_path / "endless", tmp_path / "here"
    here.mkdir()
    endless.write_bytes(bytes(64 << 20))
    hub.repositories["org/name"].add("vocab.txt", endless, size=1000)
    snapshot = Hub(hub.url).snapshot("org/name", None)
    with refused(CorruptFile, "vocab.txt", "org/name"):
        Hub(hub.url).fetch(snapshot, snapshot.files["vocab.txt"], here)
    assert not list(here.iterdir())
    assert "vocab.txt" not in hub.sent


@pytest.mark.parametrize(
    ("model", "revision", "error", "facts"),
    [
        ("org/nothing", None, ModelNotFound, ["org/nothing"]),
        ("org/name", "v9", RevisionNotFound, ["org/name", "v9"]),
        ("no such/id", None, WrongConfig, ["handler.model_name", "no such/id"]),
    ],
)
def test_a_missing_model_or_revision_is_an_error(
    hub: LocalHub, model: str, revision: str | None, error: type[KitError], facts: list[str]
) -> None:
    with refused(error, *facts):
        Hub(hub.url).snapshot(model, revision)


def test_the_error_for_a_gated_model_links_to_the_access_request(
    hub: LocalHub, tmp_path: Path
) -> None:
    hub.gate("org/name")
    snapshot = Hub(hub.url).snapshot("org/name", None)
    with refused(AccessDenied, f"{hub.url}/org/name"):
        Hub(hub.url).fetch(snapshot, snapshot.files["config.json"], tmp_path)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (503, b"", HubFailed),
        (200, b"<html>", NotAHub),
        (200, b"[]", NotAHub),
        (200, b'{"id": 1}', NotAHub),
        (200, b'{"id": "x", "sha": "../main", "siblings": []}', NotAHub),
        (200, b'{"id": "x", "sha": 5, "siblings": []}', NotAHub),
        (200, b'{"id": "x", "siblings": [{"rfilename": "a", "lfs": 5}]}', NotAHub),
        (200, b'{"id": "x", "siblings": [5]}', NotAHub),
        (200, b'{"id": "x", "lastModified": "today"}', NotAHub),
        (200, b"[" * 100_000, NotAHub),
    ],
)
def test_an_endpoint_that_is_not_a_hub_is_an_error(
    hub: LocalHub, status: int, body: bytes, error: type[KitError]
) -> None:
    hub.answer_everything(status, body)
    with refused(error, hub.url):
        Hub(hub.url).snapshot("org/name", None)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (302, {"Location": "/again"}),
        (302, {"Location": "http://[bad"}),
        (302, {"Location": "ftp://127.0.0.1/x"}),
        (200, {"Content_Encoding": "gzip"}),
    ],
)
def test_a_hub_that_breaks_http_is_an_error(
    hub: LocalHub, tmp_path: Path, status: int, headers: dict[str, str]
) -> None:
    snapshot = Hub(hub.url).snapshot("org/name", None)
    hub.answer_everything(status, b"not gzip", **headers)
    with refused(HubUnreachable, hub.url):
        Hub(hub.url).snapshot("org/name", None)
    with refused(HubUnreachable, hub.url):
        Hub(hub.url).fetch(snapshot, snapshot.files["config.json"], tmp_path)


def test_the_error_for_an_unreachable_hub_names_alternatives() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        with refused(HubUnreachable, endpoint, "HF_ENDPOINT", "make_demo_models"):
            Hub(endpoint).snapshot("org/name", None)


def test_a_proxy_that_needs_a_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(*_: object, **__: object) -> None:
        raise ImportError("Using SOCKS proxy, but the 'socksio' package is not installed.")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", snapshot)
    with pytest.raises(ImportError):
        Hub("http://127.0.0.1:9").snapshot("org/name", None)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with refused(ProxyUnsupported, "ALL_PROXY", "socksio"):
        Hub("http://127.0.0.1:9").snapshot("org/name", None)


def test_offline_mode_is_respected(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with refused(HubOffline, "HF_HUB_OFFLINE"):
        Hub(hub.url).snapshot("org/name", None)
    assert not hub.log
