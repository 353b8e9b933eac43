"""One real TorchServe for all end to end tests: the demo models, and a few that show one thing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.kit.archive import pack
from scripts.kit.demo_models import ensure
from scripts.kit.demo_models.lessons import modes
from scripts.kit.places import MODEL_CONFIGS, MODELS
from scripts.kit.server import Server
from scripts.kit.torchserve import TorchServe

# Six models load and answer on cores that other work may share.
PATIENT = {"startupTimeout": 480, "responseTimeout": 600}

OLD_EXAMPLE = {
    **PATIENT,
    "minWorkers": 1,
    "maxWorkers": 1,
    "handler": {
        "model_name": str(MODELS / "sequence_classification"),
        "mode": "sequence_classification",
        "do_lower_case": True,
        "num_labels": 2,
        "save_mode": "pretrained",
        "max_length": 150,
        "captum_explanation": True,
        "embedding_name": "bert",
        "BetterTransformer": False,
        "model_parallel": False,
    },
    "pt2": {"compile": {"enable": True, "backend": "inductor", "mode": "reduce-overhead"}},
}

CHAT = {
    **PATIENT,
    "handler": {"mode": "text_generation", "model_name": str(MODELS / "text_generation")},
}
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model store with an archive of each demo model and one of an old YAML."""
    ensure(modes())
    store = tmp_path_factory.mktemp("model_store")
    configs = tmp_path_factory.mktemp("configs")
    old = _config(configs, "old_example", OLD_EXAMPLE)
    for config in [*(_exact(configs, mode) for mode in modes()), old]:
        pack(config, export_path=store, checked=False)
    template = configs / "chat_template.jinja"
    template.write_text(CHAT_TEMPLATE, encoding="utf-8")
    chat = _config(configs, "chat", CHAT)
    pack(chat, export_path=store, extra_files=[template], checked=False)
    return store


def _exact(folder: Path, mode: str) -> Path:
    """Write a mode's YAML as it is but for the dtype: answers are compared, on every processor."""
    document = yaml.safe_load((MODEL_CONFIGS / f"{mode}.yaml").read_text(encoding="utf-8"))
    document["handler"]["dtype"] = "float32"
    document |= PATIENT
    return _config(folder, mode, document)


def _config(folder: Path, name: str, document: dict[str, Any]) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Six small models share this machine's cores: one thread each is what they can use.
    os.environ["OMP_NUM_THREADS"] = "1"
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(model_store=store, workdir=workdir, timeout=480) as server:
        yield server
