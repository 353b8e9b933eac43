"""The recipes are followed literally, in a copy of the repository."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hf_serve.demo_models import ensure
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import free_ports
from tests.checkout import copy_repository, environment_of, use_free_ports
from tests.docs.pages import DOCS, Block, blocks_of
from tests.standins.checkpoints import write_checkpoint

CLIENTS = ROOT / ".venv-clients" / "bin" / "python"
BLOCKS = [block for block in blocks_of(DOCS / "recipes.md") if block.language in ("bash", "python")]
MARK = "=== block"
REVIEWS = ("a good film", "a bad film", "a film, good and bad")

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, with a model of several labels and a file of reviews."""
    ensure(["sentence_embedding"])
    folder = tmp_path_factory.mktemp("recipes") / "kit"
    copy_repository(folder)
    write_multi_label_model(folder / "my-run" / "final")
    with (folder / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["review"], *([review] for review in REVIEWS)])
    return folder


@pytest.fixture(scope="module")
def outputs(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The output of each block; all are run in order in one shell."""
    environment = environment_of(tmp_path_factory.mktemp("t"), copy, "http://127.0.0.1:9")
    script = prepared("\n".join(["set -e", *map(command_of, BLOCKS)]), copy)
    done = subprocess.run(
        ["bash", "-c", script], cwd=copy, env=environment, capture_output=True, text=True
    )
    for workdir in ("build/server", "hf-serve/server"):
        stop = ["python", "scripts/serve.py", "stop", "--workdir", workdir]
        subprocess.run(stop, cwd=copy, env=environment, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    parts = done.stdout.split(f"{MARK}\n")[1:]
    yield dict(zip((block.text for block in BLOCKS), parts, strict=True))


def output_of(outputs: dict[str, str], part: str) -> str:
    """Return the output of the block with a part of a command, with single spaces."""
    (found,) = (output for command, output in outputs.items() if part in command)
    return " ".join(found.split())


def write_multi_label_model(folder: Path) -> None:
    path = write_checkpoint(folder) / "config.json"
    config = json.loads(path.read_text()) | {"problem_type": "multi_label_classification"}
    path.write_text(json.dumps(config))


def command_of(block: Block) -> str:
    python = f"{CLIENTS} - <<'EOF'\n{block.text}EOF\n"
    return f"echo '{MARK}'\n{python if block.language == 'python' else block.text}"


def prepared(script: str, copy: Path) -> str:
    """Let the servers of a script listen on free ports, and measure one format for a short time."""
    script = script.replace("--only pretrained,openvino", "--only pretrained --seconds 0.2")
    ports, url = use_free_ports(copy), free_ports().inference
    run_model = copy / "scripts" / "run_model.py"
    run_model.write_text(run_model.read_text("utf-8").replace("] = 8000", f"] = {url}"), "utf-8")
    for old, new in ((8000, url), (8080, ports.inference), (8082, ports.metrics)):
        script = re.sub(rf"\b{old}\b", str(new), script)
    return script


def test_a_folder_of_trainer_is_checked_and_served(outputs: dict[str, str]) -> None:
    output = output_of(outputs, "scripts/check_model.py")
    assert "sequence_classification" in output
    assert "hf-serve/final.yaml is written" in output


def test_each_label_of_several_has_a_probability_by_itself(outputs: dict[str, str]) -> None:
    found = json.loads(output_of(outputs, '"top_k": null'))
    assert len(found) == 2
    assert sum(each["score"] for each in found) != pytest.approx(1)


def test_metrics_and_times_are_shown(outputs: dict[str, str]) -> None:
    assert "s to connect" in output_of(outputs, "time_connect")
    assert "hf_forward_time" in output_of(outputs, "grep -E")


def test_each_row_of_a_file_gets_a_label(outputs: dict[str, str], copy: Path) -> None:
    with (copy / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["review"] for row in rows] == list(REVIEWS)
    assert all(0 < float(row["score"]) < 1 for row in rows)


def test_the_formats_of_the_model_are_measured(outputs: dict[str, str]) -> None:
    output = output_of(outputs, "scripts/bench_model.py")
    assert "is recommended" in output
    assert "save_mode:" in output


def test_a_key_is_needed(outputs: dict[str, str]) -> None:
    assert output_of(outputs, "AuthenticationError") == "384 401"


def test_clients_of_tei_get_vectors(outputs: dict[str, str]) -> None:
    output = output_of(outputs, "/embed ")
    assert [len(vector) for vector in json.loads(output)] == [384, 384]
