"""`rollout.py` finds the server that runs; `serving/test_rollout.py` has the steps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hf_serve.scripts import rollout
from hf_serve.scripts.serving import workdirs
from hf_serve.scripts.serving.ports import Ports
from hf_serve.scripts.serving.processes import started_at
from hf_serve.scripts.serving.server import Server


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command makes a rollout of."""
    found: dict[str, Any] = {}

    class Recorded:
        def __init__(self, model: str, **settings: Any) -> None:
            found.update(settings, model=model)

        def back(self, version: str) -> None:
            found["version"] = version

    monkeypatch.setattr(rollout, "Rollout", Recorded)
    return found


def run(*arguments: str) -> None:
    result = CliRunner().invoke(rollout.app, [*arguments, "back", "m", "1.0"])
    assert result.exit_code == 0, result.output


def test_store_and_addresses_are_those_of_the_server(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workdirs, "RUN", tmp_path)
    ports, store = Ports(1001, 1002, 1003, 1004, 1005), tmp_path / "store"
    started = started_at(os.getpid()) or 0.0
    Server(os.getpid(), started, {}, ports, tmp_path, tmp_path, model_store=store).save()
    run()
    assert (made["model"], made["version"], made["store"]) == ("m", "1.0", store)
    assert made["inference_url"] == "http://127.0.0.1:1001"
    assert made["management_url"] == "http://127.0.0.1:1002"
    assert made["metrics_url"] == "http://127.0.0.1:1003/metrics"


def test_options_come_first(made: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "other"
    run("--management", "http://127.0.0.1:2002", "--model-store", str(store))
    assert (made["store"], made["management_url"]) == (store, "http://127.0.0.1:2002")
