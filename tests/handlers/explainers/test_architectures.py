"""Gradients are computed for every architecture, whatever the names of its modules."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests import tiny
from tests.serving import Served, explanation_of
from tests.tiny_tokenizers import POSITIONS, write_bert, write_gpt2

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": POSITIONS,
    "num_labels": 3,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": SMALL,
    "Roberta": {**SMALL, "max_position_embeddings": POSITIONS + 2},
    "XLMRoberta": {**SMALL, "max_position_embeddings": POSITIONS + 2},
    "DistilBert": {
        "dim": 32,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 64,
        "max_position_embeddings": POSITIONS,
        "num_labels": 3,
    },
    "Albert": {**SMALL, "embedding_size": 16},
    "Electra": {**SMALL, "embedding_size": 16},
    "Deberta": {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "DebertaV2": {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS, "num_labels": 3},
    "Llama": {**SMALL, "num_key_value_heads": 2},
}


def write(folder: Path, family: str) -> Path:
    folder.mkdir()
    decoder = family in ("GPT2", "Llama")
    if decoder:
        end = write_gpt2(folder)
        ids: dict[str, Any] = {"vocab_size": 400, "eos_token_id": end, "pad_token_id": end}
    else:
        ids = write_bert(folder)
    config = getattr(transformers, f"{family}Config")(**{**FAMILIES[family], **ids})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{family}ForSequenceClassification")(config)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["layer_integrated_gradients", "input_x_gradient"])
def test_every_architecture_is_explained_by_gradients(
    tmp_path: Path, family: str, method: str
) -> None:
    served = Served(write(tmp_path / family, family), "sequence_classification")
    bodies = [
        {"inputs": text, "parameters": {"method": method}}
        for text in ("A fine film.", "Nina Vogel sings in the old bar near the river in Paris.")
    ]
    for status, explanation in served.post(*map(explanation_of, bodies)):
        assert status == 200, explanation
        assert any(abs(value) > 0 for value in explanation["attributions"])
        assert all(map(math.isfinite, explanation["attributions"]))
        assert explanation["converged"] in (True, None)


def test_weights_keep_no_gradients(tmp_path: Path) -> None:
    served = Served(
        tiny.write(tmp_path / "m", "sequence_classification"), "sequence_classification"
    )
    served.post(explanation_of({"inputs": "A fine film."}))
    module = served.engine.model.module  # type: ignore[attr-defined]
    assert all(weight.grad is None for weight in module.parameters())
    assert not any(weight.requires_grad for weight in module.parameters())
