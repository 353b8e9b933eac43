"""lm-evaluation-harness with a model in this process: choices by log probabilities, and texts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_serve.demo_models import ensure
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import MODELS
from tests.http_front import front
from tests.serving import Served

pytestmark = [pytest.mark.server, pytest.mark.nightly]
HARNESS = ROOT / ".venv-evaluation" / "bin" / "lm_eval"
SECONDS = 600
PROMPT = "Once upon a time there was a little {}. She lived"
ROWS = [
    {"prompt": PROMPT.format(animal), "choices": [" in a village", " 17 quartz"], "best": 0}
    for animal in ("bear", "fox", "duck", "owl")
]
COMMON = {"dataset_path": "json", "test_split": "test", "doc_to_text": "{{prompt}}"}
TASKS: dict[str, dict[str, Any]] = {
    "choices": {
        "output_type": "multiple_choice",
        "doc_to_choice": "choices",
        "doc_to_target": "best",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    },
    "stories": {
        "output_type": "generate_until",
        "doc_to_target": "in a village",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 16},
        "metric_list": [{"metric": "exact_match"}],
    },
}


@pytest.fixture(scope="module")
def folder() -> Path:
    """The demo model, which knows stories."""
    ensure(["text_generation"])
    return MODELS / "text_generation"


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with front({"m": Served(folder, "text_generation")}) as url:
        yield f"{url}/m/1.0/v1/completions"


def test_choices_and_texts_are_evaluated(url: str, folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    files = {"dataset_kwargs": {"data_files": {"test": str(rows)}}}
    for name, settings in TASKS.items():
        task = {"task": name, **COMMON, **files, **settings}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(task))
    model = f"model=m,base_url={url},tokenizer={folder},max_length=256,max_retries=1"
    arguments: dict[str, str] = {
        "--model": "local-completions",
        "--model_args": model,
        "--tasks": ",".join(TASKS),
        "--include_path": str(tmp_path),
        "--batch_size": "4",
        "--output_path": str(tmp_path / "out" / "results.json"),
    }
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [
            str(HARNESS),
            "run",
            *(each for pair in arguments.items() for each in pair),
            "--log_samples",
        ],
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = tmp_path.glob("out/**/results*.json")
    assert json.loads(found.read_text())["results"]["choices"]["acc,none"] == 1
    (samples,) = tmp_path.glob("out/**/samples_stories*.jsonl")
    texts = [json.loads(line)["filtered_resps"][0] for line in samples.read_text().splitlines()]
    assert len(texts) == len(ROWS) and all(text.strip() for text in texts)
