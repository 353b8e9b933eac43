"""MiniLM learns the sentiment of reviews."""

from __future__ import annotations

from typing import Any

from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_serve.demo_models.minilm import load_model, load_tokenizer
from hf_serve.demo_models.shipped import ShippedTrainer
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.sentiment import (
    LABELS,
    Review,
    mixed_reviews,
    reviews,
    written_reviews,
)
from hf_serve.demo_models.training import Feature, Plan, accuracy


class SequenceClassification(ShippedTrainer):
    """Reviews, NEGATIVE or POSITIVE."""

    plan = Plan(rows=2200, batch=32, rate=1e-4)
    evaluation_rows = 400

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM with a new head of two labels."""
        model = load_model(
            AutoModelForSequenceClassification,
            labels=LABELS,
            problem_type="single_label_classification",
        )
        return model, load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write reviews with their labels."""
        return _encode(tokenizer, mixed_reviews(rows, seed))

    def measure(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        split: Split,
        rows: int,
        seed: int,
    ) -> dict[str, float]:
        """Return the share of reviews with the right label, by hand and from the grammar."""
        written, generated = written_reviews(split), reviews(split, rows, seed)
        return {
            "accuracy": accuracy(model, _encode(tokenizer, written)),
            "accuracy on the grammar": accuracy(model, _encode(tokenizer, generated)),
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write reviews, more because each has one label, that are not among the training rows."""
        return [review.text for review in reviews("held_out", 2 * rows, seed)]


TRAINER = SequenceClassification()


def _encode(tokenizer: PreTrainedTokenizerBase, written: list[Review]) -> list[Feature]:
    return [{**tokenizer(review.text), "labels": review.label} for review in written]
