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
    """The output of each block by its first line; all are run in order in one shell."""
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
    yield {block.text.partition("\n")[0]: part for block, part in zip(BLOCKS, parts, strict=True)}


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
    output = outputs["python scripts/check_model.py my-run/final"]
    assert "sequence_classification" in output
    assert "hf-serve/final.yaml is written" in output


def test_each_label_of_several_has_a_probability_by_itself(outputs: dict[str, str]) -> None:
    _, output = (text for line, text in outputs.items() if "predictions" in line)
    assert len(json.loads(output)) == 2


def test_metrics_and_times_are_shown(outputs: dict[str, str]) -> None:
    output = next(text for line, text in outputs.items() if line.startswith("grep"))
    assert "hf_forward_time" in output


def test_each_row_of_a_file_gets_a_label(outputs: dict[str, str], copy: Path) -> None:
    with (copy / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["review"] for row in rows] == list(REVIEWS)
    assert all(0 < float(row["score"]) < 1 for row in rows)


def test_the_formats_of_the_model_are_measured(outputs: dict[str, str]) -> None:
    output = outputs["python scripts/serve.py stop --workdir hf-serve/server"]
    assert "is recommended" in output
    assert "save_mode:" in output


def test_a_key_is_needed(outputs: dict[str, str]) -> None:
    assert outputs["from pathlib import Path"] == "384\n401\n"


def test_clients_of_tei_get_vectors(outputs: dict[str, str]) -> None:
    output = outputs["curl http://127.0.0.1:8000/embed \\"]
    assert [len(vector) for vector in json.loads(output)] == [384, 384]
