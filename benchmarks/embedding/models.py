"""The models to measure: the pretrained MiniLM, and bert-base with seeded random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from benchmarks.models import TINY
from hf_serve.demo_models import ensure
from hf_serve.demo_models.minilm import load_tokenizer
from hf_serve.scripts.paths import MODELS as DEMO_MODELS

MODE = "sentence_embedding"
DESCRIPTIONS = {
    "minilm": "all-MiniLM-L6-v2: 6 layers of 384, pretrained.",
    "bert_base": "The architecture of bert-base, 12 layers of 768, untrained.",
}


def minilm(work: Path) -> Path:
    """Return the folder of the demo model, made where it is missing."""
    ensure([MODE])
    return DEMO_MODELS / MODE


def bert_base(work: Path) -> Path:
    """Return the folder of a model of 110 million parameters, made where it is missing."""
    return _bert(work / "models" / "bert_base_embedding", BertConfig())


def tiny(work: Path) -> Path:
    """Return the folder of a tiny model, for trial runs."""
    return _bert(work / "models" / "bert_tiny_embedding", BertConfig(**TINY))


def _bert(target: Path, config: BertConfig) -> Path:
    if not (target / "config.json").is_file():
        torch.manual_seed(0)
        load_tokenizer().save_pretrained(target)
        BertModel(config).save_pretrained(target)
    return target


MODELS: dict[str, Callable[[Path], Path]] = {"minilm": minilm, "bert_base": bert_base}
