"""Each shell block of the README runs, in order, in a fresh copy of the repository.

That takes minutes and is marked slow; `tests/docs/test_pages.py` checks every command quickly.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from handlers.config.model_config import ModelConfig
from scripts.kit.default_modes import default_modes
from scripts.kit.demo_models import ensure
from scripts.kit.places import MODEL_CONFIGS, MODELS, ROOT
from scripts.kit.ports import free_ports
from tests.docs.pages import DOCS, blocks_of
from tests.standins.hub import LocalHub

README = ROOT / "README.md"
BLOCKS = list(blocks_of(README))
HUB_NAME = "distilbert/distilbert-base-cased-distilled-squad"
PINNED = "564e9b5"
MARK = "=== block"
LONGEST = 160


def test_it_is_one_page() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_the_yaml_is_that_of_the_named_file() -> None:
    (block,) = (block for block in BLOCKS if block.language == "yaml")
    shown = ModelConfig.parse(yaml.safe_load(block.text))
    assert (
        shown.model_dump()
        == ModelConfig.read(MODEL_CONFIGS / "question_answering.yaml").model_dump()
    )


def test_every_curl_is_followed_by_what_it_answers_or_is_named_in_the_text() -> None:
    shells = [block.text for block in BLOCKS if block.language == "bash"]
    assert [text for text in shells if text.startswith("make")] == [
        "make demo\n",
        "make serve\n",
        "make stop\n",
    ]
    assert sum(text.startswith("curl") for text in shells) == 3


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The output of each shell block, by block; all are run in order in one shell."""
    ensure()
    copy = tmp_path_factory.mktemp("readme") / "kit"
    _copy_repository(copy)
    port = _use_free_ports(copy)
    scripts = [block.text for block in BLOCKS if block.language == "bash"]
    scripts.insert(_first_with("torchserve --start", scripts), _archiver())
    lines = [f"echo '{MARK}'\n{block}" for block in scripts]
    script = "set -e\n" + "\n".join(lines).replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    script = script.replace("--retry 60", "--retry 300")  # other processes may use the cores
    with LocalHub({HUB_NAME: MODELS / "question_answering"}) as hub:
        hub.tag(HUB_NAME, PINNED)
        environment = _environment(tmp_path_factory.mktemp("t"), copy, hub.url)
        done = subprocess.run(
            ["bash", "-c", script], cwd=copy, env=environment, capture_output=True, text=True
        )
    subprocess.run(["torchserve", "--stop"], cwd=copy, env=environment, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    parts = done.stdout.split(f"{MARK}\n")[1:]
    yield dict(zip(scripts, parts, strict=True))


@pytest.mark.slow
def test_the_demo_shows_every_mode(outputs: dict[str, str]) -> None:
    shown = outputs["make demo\n"]
    assert all(f"/predictions/{mode}" in shown for mode in default_modes())
    assert "/explanations/sequence_classification" in shown
    assert "Why the answer is POSITIVE:" in shown


@pytest.mark.slow
def test_each_curl_answers_as_printed(outputs: dict[str, str]) -> None:
    (printed,) = (json.loads(block.text) for block in BLOCKS if block.language == "json")
    curls = [text for block, text in outputs.items() if block.startswith("curl")]
    by_make, explanation, by_hand = map(_first_object, curls)
    assert _without_numbers(by_make) == _without_numbers(printed)
    assert _without_numbers(by_hand) == _without_numbers(printed)
    assert {"words", "importances", "attributions", "convergence_delta"} <= explanation.keys()


def _archiver() -> str:
    """Return the block that packs with TorchServe's own archiver, which the README links to."""
    page = blocks_of(DOCS / "getting-started.md")
    (found,) = (block.text for block in page if block.text.startswith("torch-model-archiver"))
    return found


def _first_with(command: str, scripts: list[str]) -> int:
    return next(number for number, script in enumerate(scripts) if command in script)


def _copy_repository(target: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.splitlines():
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    shutil.copytree(MODELS, target / MODELS.relative_to(ROOT), copy_function=os.link)


def _use_free_ports(copy: Path) -> int:
    """Let the copy's server listen on free ports; returns the inference port."""
    ports = free_ports()
    path = copy / "config.properties"
    settings = path.read_text(encoding="utf-8")
    for key, value in ports.properties().items():
        settings = re.sub(rf"^{key}=.*$", f"{key}={value}", settings, flags=re.MULTILINE)
    path.write_text(settings, encoding="utf-8")
    return ports.inference


def _environment(scratch: Path, copy: Path, hub: str) -> dict[str, str]:
    """Return the variables of an environment in which the copy is installed."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    places = {"TMPDIR": str(scratch), "TEMP": str(scratch), "PYTHONPATH": str(copy)}
    venv = {"VENV": str(Path(sys.prefix)), "MAKEFLAGS": f"VENV={sys.prefix}"}
    online = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
    return {**online, **places, **venv, "PATH": tools, "HF_ENDPOINT": hub}


def _first_object(text: str) -> dict[str, Any]:
    """Return the JSON in an output, which may have lines of a log as well."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text[text.index('{"') :])[0]
    return found


def _without_numbers(answer: Any) -> Any:
    """Leave out the score, which differs on a machine that trains other models."""
    return {key: value for key, value in answer.items() if key != "score"}
