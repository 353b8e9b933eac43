"""A tiny classifier that is trained to detect one word, which decides on the label."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from tests import tiny

WORD = "lovely"
OTHERS = [
    "the",
    "music",
    "is",
    "in",
    "bar",
    "a",
    "film",
    "and",
    "weather",
    "today",
    "it",
    "nice",
    "walk",
    "park",
]
STEPS = 120


def write(folder: Path) -> Path:
    """Train and write the checkpoint: POSITIVE for texts with the word, NEGATIVE for others."""
    tiny.write(folder, "sequence_classification")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    draw = random.Random(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig.from_pretrained(folder)
        config.id2label = {0: "NEGATIVE", 1: "POSITIVE"}
        config.label2id = {"NEGATIVE": 0, "POSITIVE": 1}
        model = BertForSequenceClassification(config).train(False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for _ in range(STEPS):
            texts = [_text(draw, there=number % 2 == 1) for number in range(16)]
            batch = tokenizer(texts, padding=True, return_tensors="pt")
            labels = torch.tensor([number % 2 for number in range(16)])
            model(**batch, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


def _text(draw: random.Random, *, there: bool) -> str:
    words = draw.choices(OTHERS, k=draw.randint(3, 8))
    if there:
        words.insert(draw.randrange(len(words) + 1), WORD)
    return " ".join(words)
