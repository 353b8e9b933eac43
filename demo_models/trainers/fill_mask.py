"""MiniLM learns to fill in a word of a review."""

from __future__ import annotations

from random import Random
from typing import Any

from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.minilm import load_model, load_tokenizer
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.sentiment import reviews
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, forward

# A quarter of the vocabulary: most of the training time is the head's.
TOKENS = 8_000
# Of the tokens of a training row that are masked.
SHARE = 0.2


class FillMask(Trainer):
    """Reviews in which some tokens are masked, and one of each for the evaluation."""

    plan = Plan(rows=1600, batch=16, rate=5e-4)
    evaluation_rows = 200

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM with a new head over its most frequent tokens."""
        model = load_model(AutoModelForMaskedLM)
        model.resize_token_embeddings(TOKENS)
        return model, load_tokenizer(TOKENS)

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write reviews in which some tokens are masked."""
        return _masked(tokenizer, "train", rows, seed, SHARE)

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Count the masked tokens that the model predicts."""
        held_out = _masked(tokenizer, "held_out", rows, seed)
        labels = [row.pop("labels") for row in held_out]
        outputs = forward(model, held_out)
        places = [next(at for at, label in enumerate(row) if label >= 0) for row in labels]
        triples = zip(outputs, labels, places, strict=True)
        return {
            "accuracy": mean(int(out["logits"][at].argmax()) == row[at] for out, row, at in triples)
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write reviews that are not among the training rows, with one word masked in each."""
        rng = Random(f"mask calibration {seed}")
        words = [review.text.split() for review in reviews("held_out", rows, seed)]
        places = [rng.randrange(len(each)) for each in words]
        return [
            " ".join([*each[:place], "[MASK]", *each[place + 1 :]])
            for each, place in zip(words, places, strict=True)
        ]


def _masked(
    tokenizer: PreTrainedTokenizerBase, split: Split, count: int, seed: int, share: float = 0.0
) -> list[Feature]:
    """Write reviews in which one token and a share of the others are masked."""
    rng = Random(f"mask {split} {seed}")
    features = []
    for review in reviews(split, count, seed):
        encoded: Feature = dict(tokenizer(review.text))
        ids, labels = list(encoded["input_ids"]), [-100] * len(encoded["input_ids"])
        inside = range(1, len(ids) - 1)
        for place in {rng.choice(inside), *(each for each in inside if rng.random() < share)}:
            labels[place], ids[place] = ids[place], tokenizer.mask_token_id
        features.append({**encoded, "input_ids": ids, "labels": labels})
    return features


TRAINER = FillMask()
