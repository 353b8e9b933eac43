"""One Llama over two processes that torchrun starts, behind one TorchServe worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.serving.ports import free_ports
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests import tiny
from tests.e2e.asking import Question, ask_at_once, ask_json
from tests.serving import Served, differences, explanation_of
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly
MODE = "text_generation"
PROMPTS = ("Once upon a time", "The weather is nice today", "Ada lives in Paris and works")
PATH = "/predictions/split"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("llama"), MODE, family="Llama")


@pytest.fixture(scope="module")
def whole(llama: Path) -> Served:
    return Served(llama, MODE)


@pytest.fixture(scope="module")
def split(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("split")
    config = {
        "parallelType": "tp",
        "startupTimeout": 480,
        # By default every torchrun of a machine uses the same port for its processes.
        "torchrun": {"nproc-per-node": 2, "rdzv-endpoint": f"127.0.0.1:{free_ports().inference}"},
        "batchSize": 4,
        "maxBatchDelay": 200,
        "handler": {"mode": MODE, "model_name": str(llama), "dtype": "float32"},
    }
    path = folder / "split.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    pack(path, export_path=folder / "store")
    with TorchServe(folder / "torchserve", model_store=folder / "store", timeout=480) as server:
        yield server


def question(prompt: str, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"max_new_tokens": 12, **parameters}}


def test_two_processes_load_parts_of_the_model(split: Server) -> None:
    message = "Model is split: this is one part of 2, on cpu"
    wait_for(lambda: split.log("model_log.log").count(message) == 2)


def test_two_processes_generate_the_same_text_as_one(split: Server, whole: Served) -> None:
    for prompt in PROMPTS:
        for settings in ({}, {"do_sample": True, "seed": 5}, {"num_beams": 2}):
            body = question(prompt, **settings)
            assert ask_json(split, PATH, body).json() == whole.post(body)[0][1]


def test_a_batch_with_a_bad_row_is_answered_row_by_row(split: Server, whole: Served) -> None:
    bodies = [question(prompt) for prompt in PROMPTS]
    raw = [Question(PATH, json.dumps(body).encode()) for body in bodies]
    bad, *answers = ask_at_once(split, [Question(PATH, b'{"inputs": 5}'), *raw])
    assert bad.status_code == 400
    assert [answer.json() for answer in answers] == [whole.post(body)[0][1] for body in bodies]


def test_unseeded_draws_are_the_same_in_both(split: Server, whole: Served) -> None:
    # Processes that draw different tokens would deadlock, or return nonsense.
    drawn = question(PROMPTS[0], do_sample=True, temperature=3.0, num_return_sequences=4)
    answers = [ask_json(split, PATH, drawn) for _ in range(2)]
    assert all(answer.status_code == 200 for answer in answers)
    assert answers[0].json() != answers[1].json()
    body = question(PROMPTS[0])
    assert ask_json(split, PATH, body).json() == whole.post(body)[0][1]


def test_explanations_are_those_of_one_process(split: Server, whole: Served) -> None:
    body = question("Ada lives in", max_new_tokens=2)
    found = ask_json(split, "/explanations/split", body)
    assert found.status_code == 200, found.text
    assert not differences(found.json(), whole.post(explanation_of(body))[0][1], 1e-3)
