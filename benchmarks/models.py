"""Create the checkpoints to measure: bert-base with seeded random weights."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
import yaml
from transformers import BertConfig

from hf_serve.demo_models.minilm import load_tokenizer

ENTITIES = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")
HEADS = {
    "sequence_classification": ("SequenceClassification", ("NEGATIVE", "POSITIVE")),
    "token_classification": ("TokenClassification", ENTITIES),
    "question_answering": ("QuestionAnswering", ("start", "end")),
}
# For trial runs; too small for meaningful results.
TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
# With this bias towards "O", one token of seven is part of an entity, as in typical texts.
NO_ENTITY_BIAS = 35.0


def bert_base(target: Path, mode: str = "sequence_classification", *, tiny: bool = False) -> Path:
    """Create a model of 110 million parameters unless it exists; return its folder."""
    if not (target / "config.json").is_file():
        torch.manual_seed(0)
        head, labels = HEADS[mode]
        config = BertConfig(**(TINY if tiny else {}), id2label=dict(enumerate(labels)))
        model = getattr(transformers, f"BertFor{head}")(config)
        last = model.qa_outputs if mode == "question_answering" else model.classifier
        # A larger spread than for training, so that different texts get different answers.
        torch.nn.init.normal_(last.weight, std=0.5)
        if mode == "token_classification":
            torch.nn.init.constant_(last.bias[:1], NO_ENTITY_BIAS)
        load_tokenizer().save_pretrained(target)
        model.save_pretrained(target)
    return target


def write_yaml(path: Path, model: Path, **handler: object) -> Path:
    """Write the YAML file for a model folder."""
    document = {
        "batchSize": 16,
        "maxBatchDelay": 10,
        "responseTimeout": 600,
        "handler": {"mode": "sequence_classification", "model_name": str(model), **handler},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path
