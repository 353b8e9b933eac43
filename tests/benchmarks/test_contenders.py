"""What the other servers are started with and asked; they are measured by `make bench` alone."""

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
    """Accepts connections and never answers; once it is stopped, it refuses them."""

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


def test_a_server_that_is_gone_is_told_as_an_error_of_this_kit(listening: Listening) -> None:
    listening.stop()
    with pytest.raises(
        NoResponse, match=r"^listening did not respond .* \(ConnectError: .+\); read"
    ):
        listening.ask("a text")


def test_a_server_that_does_not_answer_in_time_is_told(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.contenders.base.TIMEOUT", 0.1)
    with pytest.raises(NoResponse, match=r"did not respond within 0.1 s \(ReadTimeout: .+\); read"):
        listening.ask("a text")


def test_mlserver_takes_part_only_where_it_is_named(tmp_path: Path) -> None:
    def taking_part(*only: str) -> list[str]:
        found = entries("sequence_classification", CHECKPOINT, tmp_path, only)
        return [each.contender.name for each in found]

    assert taking_part()[:3] == ["reference", "litserve", "kit"]
    assert "mlserver" not in taking_part()
    assert taking_part("kit", "mlserver") == ["mlserver", "kit"]


def test_mlserver_is_asked_by_the_names_of_its_inputs(tmp_path: Path) -> None:
    server = MLServer("question_answering", CHECKPOINT, tmp_path)
    tensors = json.loads(server.body({"question": "Who?", "context": "Ada."}))["inputs"]
    assert [(each["name"], each["data"]) for each in tensors] == [
        ("question", ["Who?"]),
        ("context", ["Ada."]),
    ]
    (tensor,) = json.loads(server.body("A text"))["inputs"]
    assert (tensor["name"], tensor["shape"], tensor["datatype"]) == ("args", [1], "BYTES")


def test_mlserver_gets_the_same_checkpoint_on_the_loopback(tmp_path: Path) -> None:
    server = MLServer("token_classification", CHECKPOINT, tmp_path)
    *_, folder = server.command(12345)
    settings, model = (
        json.loads((Path(folder) / name).read_text(encoding="utf-8"))
        for name in ("settings.json", "model-settings.json")
    )
    assert (settings["host"], settings["http_port"]) == ("127.0.0.1", 12345)
    extra = model["parameters"]["extra"]
    assert (extra["task"], extra["pretrained_model"]) == ("token-classification", "checkpoint")


def test_a_server_that_is_not_installed_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.contenders.external.ROOT", tmp_path)
    with pytest.raises(NotInstalled, match=r"litserve is not installed; run `make \.venv-bench"):
        LitServe(CHECKPOINT, tmp_path, "float32", 16).start()
