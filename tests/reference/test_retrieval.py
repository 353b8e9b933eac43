"""MiniLM finds passages as well as in sentence-transformers, in each precision."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hf_serve.demo_models.retrieval import Retrieval
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.formats import export
from hf_serve.handlers.types.request import Request
from hf_serve.scripts.paths import ARTIFACTS
from tests.reference.retrieval import PASSAGES, QUESTIONS, ndcg
from tests.serving import Served

MODE = "sentence_embedding"
KEPT = json.loads(Path(__file__).with_name("retrieval.json").read_text(encoding="utf-8"))
OPENVINO: dict[str, Any] = {"save_mode": "openvino", "dtype": "float32"}


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pretrained MiniLM."""
    folder = tmp_path_factory.mktemp("minilm")
    Retrieval().install(folder)
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize(
    "precision",
    [
        pytest.param({"dtype": "float32"}, id="float32"),
        pytest.param({"dtype": "bfloat16"}, id="bfloat16"),
        pytest.param(OPENVINO, id="openvino", marks=pytest.mark.openvino),
        pytest.param({**OPENVINO, "quantization": "int8"}, id="int8", marks=pytest.mark.openvino),
    ],
)
def test_ndcg_is_that_of_sentence_transformers(
    minilm: Path, precision: dict[str, Any], tmp_path: Path
) -> None:
    model = Served(_exported(minilm, tmp_path, precision), MODE, **precision)
    questions, passages = (
        [vector for _, vector in model.post(*({"inputs": text} for text in texts))]
        for texts in (QUESTIONS, PASSAGES)
    )
    assert ndcg(questions, passages) == pytest.approx(KEPT["ndcg@10"], abs=5e-4)


def _exported(checkpoint: Path, folder: Path, precision: dict[str, Any]) -> Path:
    """Return the folder of a checkpoint, or of its export, calibrated with the rows of the mode."""
    if "save_mode" not in precision:
        return checkpoint
    rows = (ARTIFACTS / MODE / "calibration.jsonl").read_text(encoding="utf-8").splitlines()
    shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
    config = ModelConfig.parse({"handler": {"mode": MODE, **precision}})
    export(folder, config, folder, [Request(**json.loads(row)) for row in rows])
    return folder
