"""A YAML of the old example, with its torch.compile settings, on a real TorchServe."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hf_serve.demo_models import ensure
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.paths import MODELS
from hf_serve.scripts.serving.torchserve import TorchServe
from tests.e2e.asking import Question, ask
from tests.e2e.conftest import PATIENT
from tests.waiting import wait_for

MODE = "sequence_classification"
OLD_EXAMPLE = {
    **PATIENT,
    "minWorkers": 1,
    "maxWorkers": 1,
    "handler": {
        "model_name": str(MODELS / MODE),
        "mode": MODE,
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


@pytest.mark.nightly
def test_a_yaml_of_the_old_example_is_served_unchanged(tmp_path: Path) -> None:
    ensure([MODE])
    config = tmp_path / "old_example.yaml"
    config.write_text(yaml.safe_dump(OLD_EXAMPLE), encoding="utf-8")
    pack(config, export_path=tmp_path / "store", checked=False)
    with TorchServe(tmp_path / "work", model_store=tmp_path / "store", timeout=480) as server:
        answer = ask(server, Question("/predictions/old_example", b"A wonderful, tender film.", {}))
        assert answer.json()[0]["label"] == "POSITIVE"
        wait_for(lambda: "Compiled model with backend inductor" in server.logs())
