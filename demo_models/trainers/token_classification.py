"""MiniLM learns to find names."""

from __future__ import annotations

from typing import Any

from transformers import AutoModelForTokenClassification, PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.demo_models.evaluation import f1
from hf_serve.demo_models.minilm import load_model, load_tokenizer
from hf_serve.demo_models.shipped import ShippedTrainer
from hf_serve.demo_models.synthetic_text.entities import (
    LABELS,
    Tagged,
    mixed_sentences,
    sentences,
    spans_of,
    written_sentences,
)
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.training import Feature, Plan, forward

Offsets = list[tuple[int, int]]


class TokenClassification(ShippedTrainer):
    """People, organisations, places and other names, as B- and I- labels of tokens."""

    plan = Plan(rows=3000, batch=32, rate=3e-4)
    evaluation_rows = 400

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM with a new head over its tokens."""
        return load_model(AutoModelForTokenClassification, labels=LABELS), load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write sentences with a label for each token except [CLS] and [SEP]."""
        features = []
        for sentence in mixed_sentences(rows, seed):
            encoded, offsets = _encode(tokenizer, sentence.text)
            labels = [-100, *sentence.labels(offsets[1:-1]), -100]
            features.append({**encoded, "labels": labels})
        return features

    def measure(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        split: Split,
        rows: int,
        seed: int,
    ) -> dict[str, float]:
        """Compare whole names: kind, first and last character have to be right."""
        generated = sentences(split, rows, seed)
        return {
            "entity F1": _compare(model, tokenizer, written_sentences(split)),
            "entity F1 on the grammar": _compare(model, tokenizer, generated),
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write sentences that are not among the training rows."""
        return [sentence.text for sentence in sentences("held_out", rows, seed)]


TRAINER = TokenClassification()


def _compare(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, held_out: list[Tagged]
) -> float:
    encoded = [_encode(tokenizer, sentence.text) for sentence in held_out]
    outputs = forward(model, [features for features, _ in encoded])
    found = []
    for output, (_, offsets) in zip(outputs, encoded, strict=True):
        best = output["logits"].argmax(-1).tolist()[1 : len(offsets) - 1]
        found.append(spans_of([LABELS[index] for index in best], offsets[1:-1]))
    return f1(found, [sentence.spans for sentence in held_out])


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[Feature, Offsets]:
    encoded = dict(tokenizer(text, return_offsets_mapping=True))
    return encoded, encoded.pop("offset_mapping")
