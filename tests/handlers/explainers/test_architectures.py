"""Gradients are those of every architecture, whatever its modules are named and return."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import RequestError, Unprocessable
from hf_serve.handlers.types.request import Request
from tests import families, tiny
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


TEXT = "w7 w23 w41 w60 w77 w12"
# A family of each kind: vectors of another shape, padded ids, a decoder with shifted ids, a layer
# that returns a pair, one whose output is changed in place. The others are marked `nightly`.
QUICK = ("bert", "xlnet", "longformer", "bart", "ibert", "ctrl")
# Of these two, no layer looks up vectors; this one has gradients in training alone.
WITHOUT_GRADIENTS = ("canine", "perceiver", "reformer")
NOT_FINITE = ("mobilebert",)


def explained(engine: Engine, method: str | None = "input_x_gradient") -> Any:
    target = (
        {"token": 3, "label": "LABEL_1"} if engine.task.description.outputs.per_token else "LABEL_1"
    )
    parameters = {"method": method, "target": target, "granularity": "token"}
    return engine.explain([Request(TEXT, parameters)])[0]


def direct(engine: Engine) -> list[float]:
    """Return the gradient of each token's row of the weights, times that row."""
    module: Any = engine.model.module  # type: ignore[attr-defined]
    ids = torch.tensor([families.tokenizer()(TEXT)["input_ids"]])
    weight = engine.model.embeddings[0].weight
    assert isinstance(weight, torch.Tensor)
    weight.requires_grad = True
    logits = module(input_ids=ids, attention_mask=torch.ones_like(ids))["logits"][0]
    score = logits[3, 1] if engine.task.description.outputs.per_token else logits[1]
    (gradient,) = torch.autograd.grad(score, weight)
    weight.requires_grad = False
    return [float(gradient[each] @ weight[each]) for each in ids[0].tolist()]


def cases() -> list[Any]:
    skipped = {*WITHOUT_GRADIENTS, *NOT_FINITE}
    return [
        pytest.param(family, mode, marks=[] if family in QUICK else [pytest.mark.nightly])
        for family in families.CLASSIFIERS
        for mode in families.modes(family)
        if family not in skipped
    ]


@pytest.mark.parametrize(("family", "mode"), cases())
def test_input_x_gradient_is_the_direct_gradient(family: str, mode: str) -> None:
    engine = families.engine(families.module(family, mode), mode)
    # A decoder may start with the id of a special token, which is no token of the text.
    found, expected = explained(engine)["attributions"][1:-1], direct(engine)[1:-1]
    assert found == pytest.approx(expected, abs=1e-5 + 1e-3 * max(map(abs, expected)))


@pytest.mark.parametrize("family", ["xlnet", "longformer", "bart"])
def test_integrated_gradients_sum_to_the_difference_for_texts_of_any_length(family: str) -> None:
    mode = "sequence_classification"
    engine = families.engine(families.module(family, mode), mode)
    texts = [TEXT, "w9 w50", " ".join(f"w{number}" for number in range(10, 34))]
    found: list[Any] = engine.explain([Request(text, {}) for text in texts])
    for each in found:
        assert each["method"] == "layer_integrated_gradients"
        assert each["converged"]


@pytest.mark.parametrize("family", WITHOUT_GRADIENTS)
def test_a_model_without_gradients_of_vectors_is_explained_by_its_forward_alone(
    family: str,
) -> None:
    mode = "sequence_classification"
    engine = families.engine(families.module(family, mode), mode)
    assert isinstance(explained(engine), Unprocessable)
    assert explained(engine, None)["method"] == "feature_ablation"
    schema = engine.describe().explanation["method"]
    assert schema["default"] == "feature_ablation"
    assert "input_x_gradient" not in schema["enum"]


def test_attributions_that_are_not_finite_are_refused() -> None:
    engine = families.engine(
        families.module("mobilebert", "token_classification"), "token_classification"
    )
    assert isinstance(explained(engine), Unprocessable)


@pytest.mark.parametrize("family", ["gpt2", "xlnet", "ctrl"])
def test_generated_tokens_are_explained_by_the_direct_gradient(family: str) -> None:
    # The gradient of weights is that of the vectors alone where the head has weights of its own.
    module = families.module(family, "text_generation", tie_word_embeddings=False)
    engine = families.engine(module, "text_generation")
    settings = {"method": "input_x_gradient", "granularity": "token", "target": "w50"}
    (found,) = engine.explain([Request(TEXT, settings)])
    ids = torch.tensor([families.tokenizer()(TEXT)["input_ids"]])
    weight = module.get_input_embeddings().weight
    weight.requires_grad = True
    logits = module(input_ids=ids, attention_mask=torch.ones_like(ids))["logits"][0, -1]
    (gradient,) = torch.autograd.grad(logits.log_softmax(-1)[50], weight)
    expected = [float(gradient[each] @ weight[each]) for each in ids[0].tolist()][1:-1]
    assert not isinstance(found, RequestError)
    assert found["attributions"][1:-1] == pytest.approx(expected, abs=1e-3 * max(expected))
