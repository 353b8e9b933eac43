from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer

from hf_serve.scripts.default_modes import default_modes
from hf_serve.scripts.download_models import main
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.hub.download import Source
from tests import tiny
from tests.sentences import Sentence
from tests.standins.checkpoints import write_checkpoint, write_config
from tests.standins.hub import LocalHub
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "http://127.0.0.1:9"


class Clone:
    """A copy of the repository, so that each test downloads into its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.models = folder, folder / "artifacts" / "models"
        ignore = shutil.ignore_patterns("__pycache__")
        for part in ("hf_serve", "handlers", "hosts", "scripts", "demo_models", "model_configs"):
            shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=ignore)
        shutil.copy2(ROOT / "pyproject.toml", folder)

    def start(self, *arguments: object, endpoint: str, **more: str) -> subprocess.Popen[str]:
        environment = os.environ | {"HF_ENDPOINT": endpoint, "COLUMNS": "120"} | more
        script = self.folder / "scripts" / "download_models.py"
        return subprocess.Popen(
            [sys.executable, script, *map(str, arguments)],
            env=environment | {"HF_HOME": str(self.folder / "hf"), "PYTHONPATH": str(self.folder)},
            cwd=self.folder.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "clone")


class Command:
    """The script's function in this process, which has imported torch already."""

    def __init__(self, models: Path, monkeypatch: Any, capsys: Any) -> None:
        self.models, self._monkeypatch, self._capsys = models, monkeypatch, capsys
        monkeypatch.setattr("hf_serve.scripts.paths.MODELS", models)
        monkeypatch.setenv("COLUMNS", "120")

    def run(self, *configs: Path, endpoint: str) -> tuple[int, str, str]:
        """Return exit code, output and errors."""
        # huggingface_hub reads HF_ENDPOINT when it is imported, which it is already.
        self._monkeypatch.setattr("hf_serve.scripts.download_models.Hub", lambda: Hub(endpoint))
        self._capsys.readouterr()
        code = 0
        try:
            main(list(configs))
        except typer.Exit as ended:
            code = ended.exit_code
        return code, *self._capsys.readouterr()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> Command:
    return Command(tmp_path / "clone" / "artifacts" / "models", monkeypatch, capsys)


def test_a_failed_model_does_not_stop_the_others(
    command: Command, hub: LocalHub, tmp_path: Path
) -> None:
    hub.push("org/base", write_checkpoint(tmp_path / "base", head=""))
    configs = [
        write_config(tmp_path / "misspelt.yaml", model_nam="org/name"),
        write_config(tmp_path / "base.yaml", model_name="org/base"),
        write_config(tmp_path / "gone.yaml", model_name="org/gone"),
        write_config(tmp_path / "good.yaml"),
    ]
    code, out, err = command.run(*configs, endpoint=hub.url)
    assert code == 1
    lines = err.splitlines()
    assert Sentence("misspelt.yaml", "handler.model_nam", "model_name") in lines
    assert Sentence("base", "org/base", "DistilBertModel") in lines
    assert Sentence("gone", hub.url, "org/gone") in lines
    assert "Traceback" not in err
    assert (hub.repositories["org/name"].resolve("main") or "?")[:7] in out
    assert [path.name for path in command.models.iterdir() if path.name[0] != "."] == ["good"]

    code, out, err = command.run(tmp_path / "good.yaml", endpoint=NOWHERE)
    assert (code, err) == (0, "")
    assert "good: org/name is here already" in out


def test_the_format_of_auto_is_printed(command: Command, hub: LocalHub, tmp_path: Path) -> None:
    config = write_config(tmp_path / "fastest.yaml", save_mode="auto")
    code, out, err = command.run(config, endpoint=hub.url)
    assert (code, err) == (0, "")
    assert "fastest: save_mode: auto is pretrained, because it is the fastest for sequence" in out


def test_a_draft_model_is_downloaded_beside_the_model(
    command: Command, hub: LocalHub, tmp_path: Path
) -> None:
    for name in ("main", "draft"):
        hub.push(f"org/{name}", tiny.write(tmp_path / name, "text_generation"))
    keys = {"mode": "text_generation", "model_name": "org/main", "assistant_model": "org/draft"}
    config = write_config(tmp_path / "assisted.yaml", **keys)
    code, out, _ = command.run(config, endpoint=hub.url)
    assert (code, "assisted (assistant_model)" in out) == (0, True)
    assert Source.read(command.models / "assisted.assistant_model") is not None

    code, out, err = command.run(config, endpoint=NOWHERE)
    assert (code, err, "org/draft is here already" in out) == (0, "", True)


@pytest.mark.server
def test_a_killed_download_is_resumed(
    clone: Clone, command: Command, hub: LocalHub, checkpoint: Path, tmp_path: Path
) -> None:
    stored = shutil.copytree(checkpoint, tmp_path / "stored")
    (stored / "model.safetensors").write_bytes(os.urandom(12 << 20))
    hub.push("org/name", stored)
    hub.interrupt("model.safetensors", after=11 << 20, stall=True)
    config, arrived = write_config(tmp_path / "model.yaml"), clone.models / ".incomplete" / "model"
    process = clone.start(config, endpoint=hub.url)
    partial = "model.safetensors*.partial"
    wait_for(lambda: any(path.stat().st_size >= 10 << 20 for path in arrived.glob(partial)))
    process.kill()
    process.communicate()
    assert not (clone.models / "model").exists()

    code, _, err = command.run(config, endpoint=hub.url)
    assert (code, err) == (0, "")
    assert [each.range for each in hub.requests("model.safetensors")] == ["", f"bytes={10 << 20}-"]
    assert len(hub.requests("tokenizer.json")) == 1
    whole = (clone.models / "model" / "model.safetensors").read_bytes()
    assert whole == (stored / "model.safetensors").read_bytes()


def is_idle(pid: int) -> bool:
    """Whether a process waits for the network: a signal during a destructor would be lost."""
    process = psutil.Process(pid)
    before = process.cpu_times()
    time.sleep(0.2)
    return process.status() == psutil.STATUS_SLEEPING and process.cpu_times() == before


@pytest.mark.usefixtures("interruptible")
def test_control_c_stops_the_download_with_a_message(
    clone: Clone, hub: LocalHub, tmp_path: Path
) -> None:
    hub.interrupt("config.json", after=10, stall=True)
    process = clone.start(write_config(tmp_path / "model.yaml"), endpoint=hub.url)
    wait_for(lambda: hub.requests("config.json") and is_idle(process.pid))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert err == "Stopped; run the command again and it goes on from here.\n"


def test_the_error_without_a_hub_names_alternatives(command: Command) -> None:
    code, _, err = command.run(endpoint=NOWHERE)
    assert code == 1
    assert err.startswith(f"{', '.join(default_modes())}: The hub at {NOWHERE} cannot be reached")
    assert "HF_ENDPOINT" in err
    assert "python scripts/make_demo_models.py" in err
    assert err.count("\n") == 1
