"""MiniLM learns whether a passage answers a question, and ranks passages by it."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from scripts.kit.demo_models.batches import Feature
from scripts.kit.demo_models.forward import forward
from scripts.kit.demo_models.grammar import Split
from scripts.kit.demo_models.lessons.base import Lesson
from scripts.kit.demo_models.minilm import load_model, load_tokenizer
from scripts.kit.demo_models.questions import questions
from scripts.kit.demo_models.score import mean
from scripts.kit.demo_models.training import Plan

# The logit of a passage that answers a question; that of others is its negative.
LOGIT = 3.0
PASSAGES = 8
ACTIVATION = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}


class Search(NamedTuple):
    """A question, and passages of which the first one answers it."""

    question: str
    passages: list[str]


class SentenceRanking(Lesson):
    """Questions with passages that answer them, and with passages that do not."""

    plan = Plan(rows=3200, batch=24, rate=2e-4)
    exam_rows = 150

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM with a new head of one logit."""
        model = load_model(AutoModelForSequenceClassification, num_labels=1)
        model.config.sentence_transformers = ACTIVATION
        return model, load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write pairs of a question and a passage with the logit that they should have."""
        pairs = [
            (question, passage, -LOGIT if number else LOGIT)
            for question, passages in _searches("train", rows // 2, 2, seed)
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

    def examine(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Rank the passages of questions: how often the right one is first, and its mean rank."""
        exam = _searches("held_out", rows, PASSAGES, seed)
        pairs = [tokenizer(row.question, passage) for row in exam for passage in row.passages]
        logits = [float(output["logits"][0]) for output in forward(model, pairs)]
        groups = [logits[at : at + PASSAGES] for at in range(0, len(logits), PASSAGES)]
        ranks = [1 + sum(logit > group[0] for logit in group[1:]) for group in groups]
        return {
            "accuracy": mean(rank == 1 for rank in ranks),
            "mean reciprocal rank": mean(1 / rank for rank in ranks),
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write pairs that are not among the training rows."""
        return [
            {"text": row.question, "text_pair": passage}
            for row in _searches("held_out", rows // 2, 2, seed)
            for passage in row.passages
        ]


LESSON = SentenceRanking()


def _searches(split: Split, count: int, passages: int, seed: int) -> list[Search]:
    """Write questions, each with the passage that answers it and passages of other questions."""
    rng = Random(f"searches {split} {seed}")
    answered = [row for row in questions(split, 2 * count + passages, seed) if row.answer]
    contexts = [row.context for row in answered]
    return [
        Search(row.question, [row.context, *_others(contexts, number, passages - 1, rng)])
        for number, row in enumerate(answered[:count])
    ]


def _others(contexts: list[str], number: int, count: int, rng: Random) -> list[str]:
    return rng.sample(contexts[:number] + contexts[number + 1 :], count)
