from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hf_serve.scripts.installation import ROOT
from tests.standins.archives import write_handlers, write_weightless, write_yaml
from tests.standins.checkpoints import write_checkpoint
from tests.standins.hub import LocalHub


@pytest.fixture(scope="session", autouse=True)
def own_checkout() -> Iterator[None]:
    """Let scripts import from here, even if another checkout is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield


@pytest.fixture(autouse=True)
def hub_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove settings of the environment that would stop requests to the local hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sequence classifier with two labels, and files that are not required."""
    return write_checkpoint(tmp_path_factory.mktemp("repository") / "org" / "name")


@pytest.fixture
def hub(checkpoint: Path) -> Iterator[LocalHub]:
    """A local hub with the tiny classifier as org/name."""
    with LocalHub({"org/name": checkpoint}) as running:
        yield running


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    """A handlers package whose handler loads any model."""
    return write_handlers(tmp_path / "package" / "handlers")


@pytest.fixture
def weightless(tmp_path: Path) -> Path:
    """A checkpoint folder with placeholder files."""
    return write_weightless(tmp_path / "weightless")


@pytest.fixture
def config_path(tmp_path: Path, weightless: Path) -> Path:
    """The YAML file of the checkpoint."""
    return write_yaml(tmp_path / "qa.yaml", weightless)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let this process and those that the test starts receive SIGINT.

    Jobs in the background of a shell ignore it.
    """
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)
