"""The recipes are followed literally, in a copy of the repository."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hf_serve.demo_models import ensure
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import free_ports
from tests import tiny, tiny_adapters
from tests.checkout import copy_repository, environment_of, use_free_ports
from tests.docs.pages import DOCS, Block, blocks_of
from tests.standins.checkpoints import write_checkpoint

CLIENTS = ROOT / ".venv-clients" / "bin" / "python"
PAGE = list(blocks_of(DOCS / "recipes.md"))
FILES = [block for block in PAGE if block.title and block.language in ("python", "yaml")]
BLOCKS = [block for block in PAGE if block.language in ("bash", "python") and not block.title]
MARK = "=== block"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
REVIEWS = ("a good film", "a bad film", "a film, good and bad")

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, with a model of several labels and a file of reviews."""
    ensure(["sentence_embedding"])
    folder = tmp_path_factory.mktemp("recipes") / "kit"
    copy_repository(folder)
    write_multi_label_model(folder / "my-run" / "final")
    tiny_adapters.write(folder / "my-lora", write_chat_model(folder / "my-base"), seed=0)
    for block in FILES:
        text = block.text.replace(MINILM, str(folder / "artifacts/models/sentence_embedding"))
        (folder / block.title).write_text(text, encoding="utf-8")
    with (folder / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["review"], *([review] for review in REVIEWS)])
    return folder


@pytest.fixture(scope="module")
def outputs(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The output of each block; all are run in order in one shell."""
    environment = environment_of(tmp_path_factory.mktemp("t"), copy, "http://127.0.0.1:9")
    environment["PATH"] = os.pathsep.join([str(write_command(copy)), environment["PATH"]])
    script = prepared("\n".join(["set -e", *map(command_of, BLOCKS)]), copy)
    done = subprocess.run(
        ["bash", "-c", script], cwd=copy, env=environment, capture_output=True, text=True
    )
    for workdir in ("build/server", "hf-serve/server"):
        stop = ["hf-serve", "stop", "--workdir", workdir]
        subprocess.run(stop, cwd=copy, env=environment, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    parts = done.stdout.split(f"{MARK}\n")[1:]
    yield dict(zip((block.text for block in BLOCKS), parts, strict=True))


def block_with(part: str) -> str:
    (found,) = (block.text for block in BLOCKS if part in block.text)
    return found


def output_of(outputs: dict[str, str], part: str) -> str:
    """Return the output of the block with a part of a command, with single spaces."""
    (found,) = (output for command, output in outputs.items() if part in command)
    return " ".join(found.split())


def write_multi_label_model(folder: Path) -> None:
    path = write_checkpoint(folder) / "config.json"
    config = json.loads(path.read_text()) | {"problem_type": "multi_label_classification"}
    path.write_text(json.dumps(config))


def write_chat_model(folder: Path) -> Path:
    path = tiny.write(folder, "text_generation") / "tokenizer_config.json"
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    return folder


def write_command(copy: Path) -> Path:
    """Write the command of the copy to a folder for the path: the installed one is of this one."""
    command = copy / "bin" / "hf-serve"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\nexec python -m hf_serve.scripts.verbs "$@"\n')
    command.chmod(0o755)
    return command.parent


def command_of(block: Block) -> str:
    interpreter = "python" if "hf_serve" in block.text else CLIENTS
    python = f"{interpreter} - <<'EOF'\n{block.text}EOF\n"
    return f"echo '{MARK}'\n{python if block.language == 'python' else block.text}"


def prepared(script: str, copy: Path) -> str:
    """Let the servers of a script listen on free ports, and measure one format for a short time."""
    script = script.replace("--only pretrained,openvino", "--only pretrained --seconds 0.2")
    script = script.replace("rollout to final 2.0", "rollout to final 2.0 --watch 1")
    ports, url = use_free_ports(copy), free_ports().inference
    run_model = copy / "scripts" / "run_model.py"
    run_model.write_text(run_model.read_text("utf-8").replace("] = 8000", f"] = {url}"), "utf-8")
    for old, new in ((8000, url), (8080, ports.inference), (8082, ports.metrics)):
        script = re.sub(rf"\b{old}\b", str(new), script)
    return script


def test_a_folder_of_trainer_is_checked_and_served(outputs: dict[str, str]) -> None:
    output = output_of(outputs, "hf-serve check")
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
    assert f"{len(REVIEWS)} rows, 0 with an error" in output_of(outputs, "hf-serve batch")
    lines = (copy / "results" / "part-000000.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["review"] for line in lines] == list(REVIEWS)
    with (copy / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["review"] for row in rows] == list(REVIEWS)
    assert all(0 < float(row["score"]) < 1 for row in rows)


def test_the_formats_of_the_model_are_measured(outputs: dict[str, str]) -> None:
    output = output_of(outputs, "hf-serve bench")
    assert "is recommended" in output
    assert "save_mode:" in output


def test_a_failed_request_has_a_reason_and_an_id(outputs: dict[str, str]) -> None:
    output = output_of(outputs, '"inputs": 5')
    assert "x-request-id: " in output and "400" in output
    assert "MODEL_LOG" in output_of(outputs, "hf-serve logs\n")


def test_a_version_is_rolled_out_and_back(outputs: dict[str, str]) -> None:
    assert "final 2.0 is the default." in output_of(outputs, "rollout to final 2.0")
    output = output_of(outputs, "rollout back")
    assert output == "final 1.0 final 2.0 (default) final 1.0 is the default."


def test_8_bit_vectors_are_compared(outputs: dict[str, str], copy: Path) -> None:
    assert "a mean cosine of 0.99" in output_of(outputs, "hf-serve run vectors.yaml")
    description = (copy / "description.json").read_text()
    assert '"rank_correlation"' in description


def test_own_code_answers(outputs: dict[str, str]) -> None:
    (best,) = json.loads(output_of(outputs, "predictions/html"))
    assert best["label"]


def test_an_archive_answers_without_a_server(outputs: dict[str, str]) -> None:
    assert output_of(outputs, "Engine.load").count("score") == 3


def test_an_adapter_and_its_base_model_chat(outputs: dict[str, str]) -> None:
    # What the random model writes may have lines.
    output = outputs[block_with('("french", "chat")')].lstrip()
    assert output.startswith("french ") and "\nchat " in output


def test_a_key_is_needed(outputs: dict[str, str]) -> None:
    assert output_of(outputs, "AuthenticationError") == "384 401"


def test_clients_of_tei_get_vectors(outputs: dict[str, str]) -> None:
    output = output_of(outputs, "/embed ")
    assert [len(vector) for vector in json.loads(output)] == [384, 384]
