from __future__ import annotations

import socket
from pathlib import Path

import pytest

from handlers.errors import KitError, WrongConfig
from scripts.kit.hub import Hub
from scripts.kit.hub_errors import (
    AccessDenied,
    CorruptFile,
    HubFailed,
    HubOffline,
    HubUnreachable,
    ModelNotFound,
    NotAHub,
    RevisionNotFound,
)
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
        with pytest.raises(CorruptFile, match=r"model\.safetensors of org/name"):
            Hub(hub.url).fetch(snapshot, snapshot.files["model.safetensors"], here)
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("model", "revision", "error", "message"),
    [
        ("org/nothing", None, ModelNotFound, "has no model org/nothing, or it is private"),
        ("org/name", "v9", RevisionNotFound, "org/name has no revision v9"),
        ("no such/id", None, WrongConfig, "handler.model_name: is 'no such/id'"),
    ],
)
def test_a_missing_model_or_revision_is_an_error(
    hub: LocalHub, model: str, revision: str | None, error: type[KitError], message: str
) -> None:
    with pytest.raises(error, match=message):
        Hub(hub.url).snapshot(model, revision)


def test_the_error_for_a_gated_model_links_to_the_access_request(
    hub: LocalHub, tmp_path: Path
) -> None:
    hub.gate("org/name")
    snapshot = Hub(hub.url).snapshot("org/name", None)
    with pytest.raises(AccessDenied, match=f"request access at {hub.url}/org/name"):
        Hub(hub.url).fetch(snapshot, snapshot.files["config.json"], tmp_path)


@pytest.mark.parametrize(
    ("answer", "error"),
    [((503, b""), HubFailed), ((200, b"<html>"), NotAHub), ((200, b'{"id": 1}'), NotAHub)],
)
def test_an_endpoint_that_is_not_a_hub_is_an_error(
    hub: LocalHub, answer: tuple[int, bytes], error: type[KitError]
) -> None:
    hub.answer_everything(*answer)
    with pytest.raises(error, match=hub.url):
        Hub(hub.url).snapshot("org/name", None)


def test_the_error_for_an_unreachable_hub_names_alternatives() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(HubUnreachable, match=f"{endpoint}.*HF_ENDPOINT.*make_demo_models"):
            Hub(endpoint).snapshot("org/name", None)


def test_offline_mode_is_respected(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubOffline, match="HF_HUB_OFFLINE is set"):
        Hub(hub.url).snapshot("org/name", None)
    assert not hub.log
