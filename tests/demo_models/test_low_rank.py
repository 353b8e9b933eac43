from __future__ import annotations

import torch
from transformers import BertConfig, BertForSequenceClassification

from hf_serve.demo_models.low_rank import add_low_rank, merge, trained_tensors


def model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    config = BertConfig(vocab_size=50, num_hidden_layers=3, **shape)
    return BertForSequenceClassification(config).eval()


def trained() -> BertForSequenceClassification:
    """A model after a step with a high learning rate."""
    torch.manual_seed(1)
    learner = model()
    add_low_rank(learner, rank=2, layers=2)
    weights = [weight for weight in learner.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        learner(torch.arange(12).reshape(2, 6), labels=torch.tensor([0, 1])).loss.backward()
        optimizer.step()
    return learner


def test_nothing_is_added_before_training() -> None:
    plain, extended = model(), model()
    add_low_rank(extended, rank=2, layers=3)
    ids = torch.arange(6)[None]
    assert torch.equal(plain(ids).logits, extended(ids).logits)


def test_a_merged_model_computes_what_the_trained_one_does() -> None:
    learner, merged = trained(), model()
    merge(merged, trained_tensors(learner))
    ids = torch.arange(20).reshape(2, 10)
    assert torch.allclose(merged(ids).logits, learner(ids).logits, atol=1e-5)
    assert not torch.allclose(merged(ids).logits, model()(ids).logits, atol=1e-2)


def test_embeddings_and_the_first_layers_stay_as_they_are() -> None:
    names = trained_tensors(trained())
    assert {name.split(".")[0] for name in names} == {"bert", "classifier"}
    assert not [name for name in names if "embeddings" in name or "layer.0." in name]
    assert {name.rpartition(".")[2] for name in names} == {"down", "up", "bias", "weight"}
