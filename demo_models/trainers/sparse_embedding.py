"""MiniLM learns the words of a passage, some of which it has to guess, as sparse weights."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.minilm import load_model, load_tokenizer
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.questions import questions
from hf_serve.demo_models.synthetic_text.searches import ranking_measures, searches
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, forward

PASSAGES = 8
MASKED = 0.3
# The loss does not depend on what all logits have in common. A low bias leaves weights of zero to
# all words but the likely ones.
BIAS = -6.0


class SparseEmbedding(Trainer):
    """Questions and passages; each token predicts its word, some of them masked."""

    plan = Plan(rows=640, batch=16, rate=1e-3)
    evaluation_rows = 40

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM with a new head over its vocabulary."""
        model = load_model(AutoModelForMaskedLM)
        torch.nn.init.constant_(model.get_output_embeddings().bias, BIAS)
        return model, load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write passages with the words that their tokens should predict."""
        rng = Random(f"sparse {seed}")
        return [_masked(tokenizer, text, rng) for text in _texts("train", rows, seed)]

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Rank the passages of questions by the product of weights, and count the weights."""
        held_out = searches("held_out", rows, PASSAGES, seed)
        asked = _weights(model, tokenizer, [row.question for row in held_out])
        read = _weights(model, tokenizer, [text for row in held_out for text in row.passages])
        scores = [float(asked[place // PASSAGES] @ weights) for place, weights in enumerate(read)]
        return {
            **ranking_measures(scores, PASSAGES),
            "weights a passage": mean(int((weights > 0).sum()) for weights in read),
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write questions and passages that are not among the training rows."""
        return _texts("held_out", rows // 2, seed)


TRAINER = SparseEmbedding()


def _texts(split: Split, count: int, seed: int) -> list[str]:
    written = questions(split, -(-count // 2), seed)
    return [text for row in written for text in (row.question, row.context)][:count]


def _masked(tokenizer: PreTrainedTokenizerBase, text: str, rng: Random) -> Feature:
    encoded: Feature = dict(tokenizer(text))
    ids = list(encoded["input_ids"])
    hidden = [place not in (0, len(ids) - 1) and rng.random() < MASKED for place in range(len(ids))]
    masked = [
        tokenizer.mask_token_id if hides else token
        for hides, token in zip(hidden, ids, strict=True)
    ]
    return {**encoded, "input_ids": masked, "labels": [-100, *ids[1:-1], -100]}


def _weights(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> list[Tensor]:
    """Return the weights of each text. Shape: (vocabulary,)."""
    return [
        torch.log1p(torch.relu(forward(model, [encoded])[0]["logits"].amax(0)))
        for encoded in map(tokenizer, texts)
    ]
