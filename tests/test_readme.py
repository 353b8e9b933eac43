"""Every block of the README does what the README says, in a fresh copy of the repository."""

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

from handlers.config.handler_section import HandlerSection
from handlers.config.model_config import ModelConfig
from scripts.kit.demo_models import ensure
from scripts.kit.demo_models.lessons import modes
from scripts.kit.places import MODELS, ROOT
from scripts.kit.ports import free_ports
from tests.standins.hub import LocalHub

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
HUB_NAME = "distilbert/distilbert-base-cased-distilled-squad"
PINNED = "564e9b5"
MARK = "=== block"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each shell block printed, by the block, all run in order in one shell."""
    ensure(modes())
    copy = tmp_path_factory.mktemp("readme") / "kit"
    _copy_repository(copy)
    port = _use_free_ports(copy)
    scripts = _in_order([block for kind, block in BLOCKS if kind == "bash"])
    lines = [f"echo '{MARK}'\n{block}" for block in scripts]
    script = "set -e\n" + "\n".join(lines).replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    script = script.replace("--retry 60", "--retry 300")  # other work may share the cores
    with LocalHub({HUB_NAME: MODELS / "question_answering"}) as hub:
        hub.tag(HUB_NAME, PINNED)
        environment = _environment(tmp_path_factory.mktemp("t"), hub.url)
        done = subprocess.run(
            ["bash", "-c", script], cwd=copy, env=environment, capture_output=True, text=True
        )
    subprocess.run(["torchserve", "--stop"], cwd=copy, env=environment, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    parts = done.stdout.split(f"{MARK}\n")[1:]
    yield dict(zip(scripts, parts, strict=True))


def test_the_demo_shows_every_mode(outputs: dict[str, str]) -> None:
    shown = outputs["make demo\n"]
    assert all(f"/predictions/{mode}" in shown for mode in modes())
    assert "/explanations/sequence_classification" in shown


def test_each_curl_answers_as_printed(outputs: dict[str, str]) -> None:
    printed = [json.loads(block) for kind, block in BLOCKS if kind == "json"]
    curls = [text for block, text in outputs.items() if block.startswith("curl")]
    by_make, explanation, by_hand = map(_first_object, curls)
    assert _without_numbers(by_make) == _without_numbers(printed[0])
    assert _without_numbers(by_hand) == _without_numbers(printed[0])
    assert {"words", "importances", "attributions", "convergence_delta"} <= explanation.keys()


def test_the_yaml_is_a_valid_config() -> None:
    for kind, block in BLOCKS:
        if kind == "yaml":
            ModelConfig.parse(yaml.safe_load(block))


def test_every_key_of_the_handler_section_is_explained() -> None:
    missing = [key for key in HandlerSection.model_fields if f"`{key}`" not in README]
    assert not missing


def test_every_picture_and_link_is_there() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert all((ROOT / link).exists() for link in links)


def _in_order(blocks: list[str]) -> list[str]:
    """Return the blocks to run: the demo server is asked for explanations while it runs.

    `make test` is what runs this.
    """
    explanations = [block for block in blocks if "/explanations/" in block]
    others = [block for block in blocks if block not in [*explanations, "make test\n"]]
    stop = others.index("make stop\n")
    return [*others[:stop], *explanations, *others[stop:]]


def _copy_repository(target: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.splitlines():
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    shutil.copytree(MODELS, target / MODELS.relative_to(ROOT), copy_function=os.link)


def _use_free_ports(copy: Path) -> int:
    """Let the copy's server listen where nobody else does; returns the port that answers."""
    ports = free_ports()
    path = copy / "config.properties"
    settings = path.read_text(encoding="utf-8")
    for key, value in ports.properties().items():
        settings = re.sub(rf"^{key}=.*$", f"{key}={value}", settings, flags=re.MULTILINE)
    path.write_text(settings, encoding="utf-8")
    return ports.inference


def _environment(scratch: Path, hub: str) -> dict[str, str]:
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    places = {"TMPDIR": str(scratch), "TEMP": str(scratch)}
    venv = {"VENV": str(Path(sys.prefix)), "MAKEFLAGS": f"VENV={sys.prefix}"}
    online = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
    return {**online, **places, **venv, "PATH": tools, "HF_ENDPOINT": hub}


def _first_object(text: str) -> dict[str, Any]:
    """Return the JSON in an output; a server that was started by hand logs between."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text[text.index('{"') :])[0]
    return found


def _without_numbers(answer: Any) -> Any:
    """Leave out what differs a little on another machine, where the models were trained."""
    return {key: value for key, value in answer.items() if key != "score"}


def test_every_link_leads_to_a_file_or_a_heading() -> None:
    targets = set(re.findall(r"\]\(([^)\s]+)\)", README))
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in README.splitlines()}
    local = {target for target in targets if not target.startswith("http")}
    assert local
    missing = {each for each in local if each[0] != "#" and not (ROOT / each).exists()}
    assert not missing | {each for each in local if each[0] == "#" and each[1:] not in headings}
