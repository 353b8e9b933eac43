"""Create a fine-tuned classifier of bert-base size without a hub.

The demo's pretrained MiniLM (6 layers, 384 dimensions) is expanded to 12 layers and 768 dimensions
with nearly the same outputs, as in Net2Net (Chen, Goodfellow and Shlens, 2016): every feature is
duplicated, and the new layers approximate the identity. It is then trained to classify sentiment.
"""

from __future__ import annotations

from pathlib import Path

import torch
from rich.progress import track
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel

from hf_serve.demo_models.synthetic_text.sentiment import LABELS
from hf_serve.demo_models.trainers.sequence_classification import TRAINER
from hf_serve.demo_models.training import Plan, fit, quiet, repeatable
from hf_serve.scripts.paths import BUILD

SEED, HEADS = 7, 12
PLAN = Plan(rows=2200, batch=32, rate=5e-5)
NOISE = 1e-3  # Without noise the copies of a feature would stay identical.


def fine_tuned_bert_base(target: Path = BUILD / "benchmarks" / "tuned_bert_base") -> Path:
    """Train the classifier unless it exists; return its folder."""
    if (target / "config.json").is_file():
        return target
    with quiet(), repeatable(SEED):
        small, tokenizer = TRAINER.start(SEED)
        model = widened(small)
        rows = TRAINER.features(tokenizer, PLAN.rows, SEED)
        bar = iter(track(range(-(-PLAN.rows // PLAN.batch)), "training bert-base"))
        fit(model, rows, PLAN, SEED, lambda _: next(bar, None))
        print(TRAINER.evaluate(model, tokenizer, TRAINER.evaluation_rows, SEED))
        tokenizer.save_pretrained(target)
        model.save_pretrained(target)
    return target


@torch.no_grad()
def widened(small: PreTrainedModel) -> PreTrainedModel:
    """Return a model of bert-base size with nearly the same outputs as the small one."""
    labels = dict(enumerate(LABELS))
    model = BertForSequenceClassification(
        BertConfig(id2label=labels, problem_type="single_label_classification")
    ).eval()
    weights = small.state_dict()
    norm = small.base_model.encoder.layer[-1].output.LayerNorm
    last = norm.weight, norm.bias
    for name, target in model.state_dict().items():
        if ".layer." in name and int(name.split(".")[3]) >= small.config.num_hidden_layers:
            _set_identity(name, target, *last)
        else:
            target.copy_(_duplicated(name, weights[name]))
        target.add_(NOISE * torch.randn_like(target))
    return model


def _set_identity(
    name: str, target: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> None:
    """Set a parameter of a new layer, so that the layer approximates the identity."""
    if "output.dense" in name:
        target.zero_()
    elif "LayerNorm.weight" in name:
        target.fill_(float((weight.square().mean() + bias.var()).sqrt()))
    elif "LayerNorm.bias" in name:
        target.fill_(float(bias.mean()))


def _duplicated(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return a parameter for vectors with every feature duplicated."""
    if "embeddings" in name:
        return torch.cat([weight, weight], dim=-1)
    if name.startswith("classifier"):
        return torch.cat([weight, weight], dim=-1) / 2 if weight.ndim == 2 else weight
    if "attention.self" in name:
        scale = 2**-0.25 if "value" not in name else 1.0  # Heads are twice as wide.
        return scale * _inputs(_by_head(weight))
    if "attention.output.dense.weight" in name:
        return torch.cat([weight, weight]).unflatten(1, (HEADS, -1)).repeat(1, 1, 2).flatten(1) / 2
    return _inputs(torch.cat([weight, weight]))


def _by_head(weight: torch.Tensor) -> torch.Tensor:
    heads = weight.unflatten(0, (HEADS, -1))
    return torch.cat([heads, heads], dim=1).flatten(0, 1)


def _inputs(weight: torch.Tensor) -> torch.Tensor:
    return torch.cat([weight, weight], dim=1) / 2 if weight.ndim == 2 else weight


if __name__ == "__main__":
    fine_tuned_bert_base()
