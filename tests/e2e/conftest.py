"""One real TorchServe for all end to end tests: the demo models, and a few that show one thing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scripts.kit.archive import pack
from scripts.kit.demo_models import ensure
from scripts.kit.demo_models.lessons import modes
from scripts.kit.places import MODEL_CONFIGS, MODELS
from scripts.kit.server import Server
from scripts.kit.torchserve import TorchServe

OLD_EXAMPLE = {
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


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model store with an archive of each demo model and one of an old YAML."""
    ensure(modes())
    store = tmp_path_factory.mktemp("model_store")
    old = tmp_path_factory.mktemp("configs") / "old_example.yaml"
    old.write_text(yaml.safe_dump(OLD_EXAMPLE), encoding="utf-8")
    for config in [*(MODEL_CONFIGS / f"{mode}.yaml" for mode in modes()), old]:
        pack(config, export_path=store, checked=False)
    return store


@pytest.fixture(scope="session")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Five small models share this machine's cores: one thread each is what they can use.
    os.environ["OMP_NUM_THREADS"] = "1"
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(model_store=store, workdir=workdir, timeout=240) as server:
        yield server
