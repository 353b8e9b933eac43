"""MiniLM learns whether a passage answers a question, and ranks passages by it."""

from __future__ import annotations

from typing import Any

from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_serve.demo_models.minilm import load_model, load_tokenizer
from hf_serve.demo_models.synthetic_text.questions import questions
from hf_serve.demo_models.synthetic_text.searches import ranking_measures, searches
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, forward

# The logit of a passage that answers a question; other passages have its negative.
LOGIT = 3.0
PASSAGES = 8
ACTIVATION = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}


class SentenceRanking(Trainer):
    """Questions with passages that answer them, and with passages that do not."""

    plan = Plan(rows=3200, batch=24, rate=2e-4)
    evaluation_rows = 150

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM with a new head of one logit."""
        model = load_model(AutoModelForSequenceClassification, num_labels=1)
        model.config.sentence_transformers = ACTIVATION
        return model, load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write pairs of a question and a passage with the logit that they should have."""
        pairs = [
            (question, passage, -LOGIT if number else LOGIT)
            for question, passages in searches("train", rows // 2, 2, seed)
            for number, passage in enumerate(passages)
        ]
        # Passages on the subject of a question that lack its answer.
        near = [
            (row.question, row.context, -LOGIT)
            for row in questions("train", rows, seed)
            if not row.answer
        ]
        return [
            {**tokenizer(question, passage), "labels": logit}
            for question, passage, logit in pairs + near
        ]

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Rank the passages of questions: how often the right one is first, and its mean rank."""
        held_out = searches("held_out", rows, PASSAGES, seed)
        pairs = [tokenizer(row.question, passage) for row in held_out for passage in row.passages]
        logits = [float(output["logits"][0]) for output in forward(model, pairs)]
        return ranking_measures(logits, PASSAGES)

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write pairs that are not among the training rows."""
        return [
            {"text": row.question, "text_pair": passage}
            for row in searches("held_out", rows // 2, 2, seed)
            for passage in row.passages
        ]


TRAINER = SentenceRanking()
