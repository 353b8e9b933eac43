"""A model with two LoRA adapters in one archive."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests import tiny, tiny_adapters
from tests.e2e.asking import Question, ask_at_once
from tests.e2e.clients import run_client

MODE = "text_generation"
PATH = f"/predictions/{MODE}"
NAMES = ("french", "dutch")
MODELS = (MODE, *NAMES)
PROMPTS = ("Once upon a time", "There was a little fox")
NEW = 12


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The texts of the checkpoint and of each merged adapter, by transformers and peft."""
    folder = tmp_path_factory.getbasetemp() / "adapted"
    base = tiny.write(folder / "base", MODE)
    tokenizer = AutoTokenizer.from_pretrained(base)
    models = {MODE: AutoModelForCausalLM.from_pretrained(base)}
    for seed, name in enumerate(NAMES):
        adapter = tiny_adapters.write(folder / name, base, seed=seed)
        models[name] = tiny_adapters.merged(base, adapter)

    def generate(model: Any, prompt: str) -> str:
        encoded = tokenizer(prompt, return_tensors="pt")
        ids = model.generate(**encoded, max_new_tokens=NEW, do_sample=False, pad_token_id=0)
        new = ids[0, encoded["input_ids"].shape[1] :]
        return str(tokenizer.decode(new, skip_special_tokens=True))

    return {name: [generate(model, prompt) for prompt in PROMPTS] for name, model in models.items()}


@pytest.fixture(scope="module")
def server(
    texts: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with the archive alone: the folders of the adapters are gone."""
    folder, store = tmp_path_factory.getbasetemp() / "adapted", tmp_path_factory.mktemp("store")
    document = {
        "batchSize": 16,
        "maxBatchDelay": 100,
        "startupTimeout": 480,
        "handler": {
            "mode": MODE,
            "model_name": str(folder / "base"),
            "adapters": {name: str(folder / name) for name in NAMES},
        },
    }
    config = store / f"{MODE}.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    pack(config, export_path=store, checked=False)
    shutil.rmtree(folder)
    with TorchServe(tmp_path_factory.mktemp("torchserve"), store, timeout=480) as server:
        yield server


def question(prompt: str, adapter: str | None) -> Question:
    parameters = {"max_new_tokens": NEW, "return_full_text": False, "adapter_id": adapter}
    return Question(PATH, json.dumps({"inputs": prompt, "parameters": parameters}).encode())


def test_requests_at_once_get_the_texts_of_their_adapters(
    server: Server, texts: dict[str, list[str]]
) -> None:
    chosen = [(name, number) for name in MODELS for number in range(len(PROMPTS))] * 2
    questions = [
        question(PROMPTS[number], None if name == MODE else name) for name, number in chosen
    ]
    answers = ask_at_once(server, [*questions, question("a", "german")])
    found = [answer.json()[0]["generated_text"] for answer in answers[:-1]]
    assert found == [texts[name][number] for name, number in chosen]
    assert answers[-1].status_code == 422
    assert len({str(each) for each in texts.values()}) == len(MODELS)


def test_openais_client_names_adapters_as_models(
    server: Server, texts: dict[str, list[str]]
) -> None:
    found = run_client(
        "openai_adapters",
        base_url=f"{server.inference_url}{PATH}/1.0/v1",
        models=MODELS,
        prompts=PROMPTS,
        settings={"max_tokens": NEW, "temperature": 0},
    )
    assert found["texts"] == [text for name in MODELS for text in texts[name]]
    assert found["answered_by"] == [name for name in MODELS for _ in PROMPTS]
    assert found["streamed"] == [texts[name][0] for name in MODELS]
    assert found["listed"] == {MODE: None, "french": MODE, "dutch": MODE}
    assert found["unknown"] == {"status": 404, "code": "model_not_found", "param": "model"}
