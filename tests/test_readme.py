"""Each shell block of the README runs, in order, in a fresh copy of the repository.

That takes minutes and is marked `nightly`; `tests/docs/test_pages.py` checks every command quickly.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hf_serve.demo_models import ensure
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.scripts.default_modes import default_modes
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import MODEL_CONFIGS, MODELS
from tests.checkout import copy_repository, environment_of, use_free_ports
from tests.docs.pages import DOCS, blocks_of
from tests.standins.hub import LocalHub

README = ROOT / "README.md"
BLOCKS = list(blocks_of(README))
HUB_NAME = "distilbert/distilbert-base-cased-distilled-squad"
PINNED = "564e9b5"
MARK = "=== block"
LONGEST = 175


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
    copy_repository(copy)
    port = use_free_ports(copy).inference
    scripts = [block.text for block in BLOCKS if block.language == "bash"]
    scripts.insert(_first_with("torchserve --start", scripts), _archiver())
    lines = [f"echo '{MARK}'\n{block}" for block in scripts]
    script = "set -e\n" + "\n".join(lines).replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    script = script.replace("--retry 60", "--retry 300")  # other processes may use the cores
    with LocalHub({HUB_NAME: MODELS / "question_answering"}) as hub:
        hub.tag(HUB_NAME, PINNED)
        environment = environment_of(tmp_path_factory.mktemp("t"), copy, hub.url)
        script = script.replace("127.0.0.1:8000", f"127.0.0.1:{environment['URL_PORT']}")
        done = subprocess.run(
            ["bash", "-c", script], cwd=copy, env=environment, capture_output=True, text=True
        )
    subprocess.run(["torchserve", "--stop"], cwd=copy, env=environment, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    parts = done.stdout.split(f"{MARK}\n")[1:]
    yield dict(zip(scripts, parts, strict=True))


@pytest.mark.nightly
def test_the_demo_shows_every_mode(outputs: dict[str, str]) -> None:
    shown = outputs["make demo\n"]
    assert all(f"/predictions/{mode}" in shown for mode in default_modes())
    assert "/explanations/sequence_classification" in shown
    assert "Why the answer is POSITIVE:" in shown


@pytest.mark.nightly
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


def _first_object(text: str) -> dict[str, Any]:
    """Return the JSON in an output, which may have lines of a log as well."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text[text.index('{"') :])[0]
    return found


def _without_numbers(answer: Any) -> Any:
    """Leave out the score, which differs on a machine that trains other models."""
    return {key: value for key, value in answer.items() if key != "score"}
