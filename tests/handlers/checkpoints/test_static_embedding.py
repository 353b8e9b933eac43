"""Static embeddings: files that are damaged, settings that they do not have, and odd texts.

`tests/reference/test_static_embedding.py` compares the vectors with those of their libraries.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.handlers.types.request import Request, TokenIds
from tests.reference.static_embedding import MODE, SIZE, write
from tests.samples import FINE
from tests.sentences import Sentence, refused
from tests.serving import Served, differences, explanation_of


@pytest.fixture
def potion(tmp_path: Path) -> Path:
    return write(tmp_path / "potion", "potion")


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("model.safetensors", b"no header", []),
        ("model.safetensors", save({"vectors": torch.zeros(3, 4)}), []),
        ("tokenizer.json", b"[]", []),
        ("tokenizer.json", b'{"model": {"type": "New"}}', []),
        ("config.json", b'{"model_type": "model2vec", "normalize": 5}', ["normalize"]),
    ],
)
def test_a_damaged_file_is_named(potion: Path, name: str, content: bytes, facts: list[str]) -> None:
    (potion / name).write_bytes(content)
    with refused(WrongCheckpoint, name, *facts):
        Served(potion, MODE)


def test_there_are_no_layers_to_distribute_and_no_labels(potion: Path) -> None:
    with refused(WrongConfig, "handler.device_map", "layers"):
        Served(potion, MODE, device_map={"": "cpu"})
    with refused(WrongCheckpoint, "static_embedding", "AutoModelForSequenceClassification"):
        Served(potion, "sequence_classification")


def test_a_text_of_unknown_tokens_has_a_vector_of_zeros_and_an_explanation(potion: Path) -> None:
    model = Served(potion, MODE)
    assert model.ask("🎉") == [0.0] * SIZE
    unknown = model.engine.task.checkpoint.config.unknown_token_id
    (zeros,) = model.engine.predict([Request(TokenIds((unknown, unknown)))])
    assert zeros == [0.0] * SIZE
    assert not differences(model.ask(f"🎉 {FINE} 🎉"), model.ask(FINE), 1e-6)
    (status, answer), (odd, _) = model.post(
        explanation_of({"inputs": FINE}), explanation_of({"inputs": "🎉"})
    )
    assert (status, odd) == (200, 200)
    assert "fine" in answer["words"]


def test_the_yaml_limits_a_text(potion: Path) -> None:
    model = Served(potion, MODE, max_length=3)
    assert model.ask(FINE) == model.ask("A fine film")
    assert model.refuse(FINE, truncate=False) == (413, Sentence("tokens", 3))


def test_a_config_without_a_model_type_is_read_as_model2vec_wrote_it_first(potion: Path) -> None:
    wanted = Served(potion, MODE).ask(FINE)
    first = {"tokenizer_name": "bert", "apply_pca": SIZE, "apply_zipf": True, "normalize": True}
    (potion / "config.json").write_text(json.dumps(first), "utf-8")
    assert Served(potion, MODE).ask(FINE) == wanted
