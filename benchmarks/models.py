"""The checkpoint that is measured: bert-base's architecture, with seeded random weights."""

from __future__ import annotations

from pathlib import Path

import torch
import yaml
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from scripts.kit.demo_models.minilm import minilm


def bert_base(target: Path) -> Path:
    """Write a sequence classifier of 110 million parameters, unless it is there; returns it."""
    if not (target / "config.json").is_file():
        torch.manual_seed(0)
        labels = {0: "NEGATIVE", 1: "POSITIVE"}
        config = BertConfig(num_labels=2, id2label=labels)
        model = BertForSequenceClassification(config)
        # A larger spread than for training, so that texts get answers that differ.
        torch.nn.init.normal_(model.classifier.weight, std=0.5)
        AutoTokenizer.from_pretrained(minilm()).save_pretrained(target)
        model.save_pretrained(target)
    return target


def write_yaml(path: Path, model: Path, **handler: object) -> Path:
    """Write a model-config.yaml that serves a folder."""
    document = {
        "batchSize": 16,
        "maxBatchDelay": 10,
        "responseTimeout": 600,
        "handler": {"mode": "sequence_classification", "model_name": str(model), **handler},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path
