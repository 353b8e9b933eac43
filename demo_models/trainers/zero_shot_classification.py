"""MiniLM learns whether a text entails a hypothesis about its kind and its mood."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.minilm import load_model, load_tokenizer
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.questions import questions
from hf_serve.demo_models.synthetic_text.sentiment import reviews
from hf_serve.demo_models.synthetic_text.stories import stories
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, forward

LABELS = ("contradiction", "neutral", "entailment")
CONTRADICTION, NEUTRAL, ENTAILMENT = range(3)
KINDS = ("review", "story", "fact")
MOODS = ("negative", "positive")


class Premise(NamedTuple):
    """A text, its kind, and its mood, which only reviews have."""

    text: str
    kind: str
    mood: str | None


class ZeroShotClassification(Trainer):
    """Texts with a hypothesis; evaluation selects among the labels of all kinds, and of moods."""

    plan = Plan(rows=2200, batch=32, rate=2e-4)
    evaluation_rows = 200

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM with a new head for the labels of inference."""
        return load_model(AutoModelForSequenceClassification, labels=LABELS), load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write texts with one hypothesis each."""
        rng = Random(f"hypotheses {seed}")
        written = [
            (premise, rng.choice(KINDS + MOODS)) for premise in _premises("train", rows, seed)
        ]
        return [
            {**tokenizer(premise.text, _hypothesis(label)), "labels": _inference(premise, label)}
            for premise, label in written
        ]

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Return the shares of texts whose kind, and of reviews whose mood, is the best label."""
        held_out = _premises("held_out", rows, seed)
        asked: list[tuple[Premise, str, tuple[str, ...]]]
        asked = [(premise, premise.kind, KINDS) for premise in held_out]
        asked += [(premise, premise.mood, MOODS) for premise in held_out if premise.mood]
        pairs = [(premise.text, label) for premise, _, labels in asked for label in labels]
        encoded = [tokenizer(text, _hypothesis(label)) for text, label in pairs]
        scores = iter([float(out["logits"][ENTAILMENT]) for out in forward(model, encoded)])
        right: dict[str, list[bool]] = {"kind accuracy": [], "mood accuracy": []}
        for _, truth, labels in asked:
            best = max(labels, key=lambda _: next(scores))
            right["kind accuracy" if labels is KINDS else "mood accuracy"].append(best == truth)
        return {name: mean(each) for name, each in right.items()}

    def calibration_bodies(self, rows: int, seed: int) -> list[dict[str, Any]]:
        """Write texts that are not among the training rows, with labels in turn."""
        choices = [list(MOODS), list(KINDS)]
        return [
            {"inputs": premise.text, "parameters": {"candidate_labels": choices[number % 2]}}
            for number, premise in enumerate(_premises("held_out", rows // 2, seed))
        ]


def _premises(split: Split, count: int, seed: int) -> list[Premise]:
    """Write texts: half of them reviews, the others stories and facts."""
    share = count // 4
    told = [Premise(text, "story", None) for text in stories(split, share, seed)]
    facts = [Premise(row.context, "fact", None) for row in questions(split, share, seed)]
    opinions = [
        Premise(row.text, "review", MOODS[row.label])
        for row in reviews(split, count - 2 * share, seed)
    ]
    return [*told, *facts, *opinions]


def _hypothesis(label: str) -> str:
    return f"This example is {label}."


def _inference(premise: Premise, label: str) -> int:
    if label in (premise.kind, premise.mood):
        return ENTAILMENT
    return NEUTRAL if label in MOODS and premise.mood is None else CONTRADICTION


TRAINER = ZeroShotClassification()
