"""The walk-throughs of CONTRIBUTING.md, followed in a copy of the repository.

The task, the format and the protocol of CONTRIBUTING.md are added to the copy, with only the files
that it names. Then the contract tests run there: they find what is in the folders.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILE = re.compile(
    r"^```(?P<language>\w+) title=\"(?P<path>[\w./]+)\"\n(?P<text>.*?)^```$", re.M | re.S
)
# The added names, as in the ids of tests, and a file that has a test of each.
ADDED = {
    "next_sentence_prediction": "tests/handlers/test_contract.py",
    "torchscript_frozen": "tests/handlers/formats/test_formats.py",
    "seldon": "tests/handlers/protocols/test_seldon.py",
}
# Trains the trainer's model for a few steps, and answers the sample with it.
TRAIN_AND_ANSWER = """
import json, sys
from pathlib import Path
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.types.request import Request
from hf_serve.demo_models import make

folder = Path(sys.argv[1]) / "next_sentence_prediction"
make("next_sentence_prediction", folder, rows=24, evaluation_rows=8)
engine = Engine.load(folder, ModelConfig.read(Path("model_configs/next_sentence_prediction.yaml")))
sample = json.loads(Path("artifacts/next_sentence_prediction/sample.json").read_text())
(answer,) = engine.predict([Request(sample["inputs"])])
print(json.dumps(answer))
"""
# Files with a test for each mode, format or protocol, and files whose tests loop over all of them.
CONTRACT_TESTS = (
    "tests/handlers",
    "tests/scripts",
    "tests/demo_models",
    "tests/test_model_configs.py",
)
WHOLE = (
    "tests/test_architecture.py",
    "tests/scripts/test_openapi.py",
    "tests/handlers/protocols/test_protocols.py",
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the files of the walk-throughs, and nothing else changed."""
    target = tmp_path_factory.mktemp("walkthrough") / "repository"
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.splitlines():
        if not (ROOT / name).exists():  # Removed, and not committed.
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    for block in FILE.finditer((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        path = target / block["path"]
        if block["language"] == "diff":
            _patch(path, block["text"])
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")
    return target


def _patch(path: Path, diff: str) -> None:
    """Replace the lines of a diff, given with the lines around them."""
    before = "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[0] in " -")
    after = "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[0] in " +")
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{path.name} does not have these lines once:\n{before}"
    path.write_text(text.replace(before, after), encoding="utf-8")


def _run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    return subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True
    )


def test_the_shown_diffs_apply_to_the_files_that_they_name(copy: Path) -> None:
    registry = (copy / "handlers/registry.py").read_text(encoding="utf-8")
    assert all(f'"{name}",' in registry for name in ADDED)


@pytest.mark.nightly
def test_the_contract_tests_pass_for_what_was_added(copy: Path) -> None:
    written = _run(copy, "-m", "hf_serve.scripts.write_docs")
    assert written.returncode == 0, written.stderr[-3000:]
    run = ("-m", "pytest", "-rA", "-q", "-p", "no:cacheprovider")
    added = ("-k", " or ".join(ADDED), *CONTRACT_TESTS)
    golden = _run(copy, *run, "--rewrite-sentences", *added)
    assert golden.returncode == 0, golden.stdout[-5000:]
    tested = _run(copy, *run, *added)
    assert tested.returncode == 0, tested.stdout[-5000:]
    passed = [line for line in tested.stdout.splitlines() if line.startswith("PASSED ")]
    for name, file in ADDED.items():
        assert any(name in line and file in line for line in passed), f"no test of {name} ran"
    whole = _run(copy, *run, *WHOLE)
    assert whole.returncode == 0, whole.stdout[-5000:]


@pytest.mark.nightly
def test_the_added_files_pass_the_linter(copy: Path) -> None:
    linted = _run(copy, "-m", "ruff", "check", "handlers", "demo_models", "scripts", "tests")
    assert linted.returncode == 0, linted.stdout[-3000:]


@pytest.mark.nightly
def test_the_demo_model_of_the_task_is_trained_packed_and_loaded(
    copy: Path, tmp_path: Path
) -> None:
    done = _run(copy, "-c", TRAIN_AND_ANSWER, str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert {item["label"] for item in answer} == {"IS_NEXT", "NOT_NEXT"}
