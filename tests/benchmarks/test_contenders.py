"""Settings and requests of the other servers, which only `make bench` starts."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.contenders.base import Contender, NoResponse
from benchmarks.contenders.external import NotInstalled
from benchmarks.contenders.litserve import LitServe
from benchmarks.contenders.mlserver import MLServer
from benchmarks.entry import entries

CHECKPOINT = Path("checkpoint")


class Listening(Contender):
    """Accepts connections without responding; refuses them once stopped."""

    name, precision, leader = "listening", "float32", 0

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._port = self._socket.getsockname()[1]

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._socket.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"


@pytest.fixture
def listening() -> Iterator[Listening]:
    contender = Listening()
    yield contender
    contender.stop()


def test_a_refused_connection_is_an_error(listening: Listening) -> None:
    listening.stop()
    with pytest.raises(
        NoResponse, match=r"^listening did not respond .* \(ConnectError: .+\); read"
    ):
        listening.ask("a text")


def test_a_timeout_is_an_error(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.contenders.base.TIMEOUT", 0.1)
    with pytest.raises(NoResponse, match=r"did not respond within 0.1 s \(ReadTimeout: .+\); read"):
        listening.ask("a text")


def test_mlserver_is_measured_only_if_selected(tmp_path: Path) -> None:
    def selected(*only: str) -> list[str]:
        found = entries("sequence_classification", CHECKPOINT, tmp_path, only)
        return [each.contender.name for each in found]

    assert selected()[:3] == ["reference", "litserve", "kit"]
    assert "mlserver" not in selected()
    assert selected("kit", "mlserver") == ["mlserver", "kit"]


def test_mlserver_requests_have_named_tensors(tmp_path: Path) -> None:
    server = MLServer("question_answering", CHECKPOINT, tmp_path)
    tensors = json.loads(server.body({"question": "Who?", "context": "Ada."}))["inputs"]
    assert [(each["name"], each["data"]) for each in tensors] == [
        ("question", ["Who?"]),
        ("context", ["Ada."]),
    ]
    (tensor,) = json.loads(server.body("A text"))["inputs"]
    assert (tensor["name"], tensor["shape"], tensor["datatype"]) == ("args", [1], "BYTES")


def test_mlserver_is_configured_with_the_checkpoint_on_the_loopback_interface(
    tmp_path: Path,
) -> None:
    server = MLServer("token_classification", CHECKPOINT, tmp_path)
    *_, folder = server.command(12345)
    settings, model = (
        json.loads((Path(folder) / name).read_text(encoding="utf-8"))
        for name in ("settings.json", "model-settings.json")
    )
    assert (settings["host"], settings["http_port"]) == ("127.0.0.1", 12345)
    extra = model["parameters"]["extra"]
    assert (extra["task"], extra["pretrained_model"]) == ("token-classification", "checkpoint")


def test_the_error_for_a_missing_environment_names_the_make_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.contenders.external.ROOT", tmp_path)
    with pytest.raises(NotInstalled, match=r"litserve is not installed; run `make \.venv-bench"):
        LitServe(CHECKPOINT, tmp_path, "float32", 16).start()
