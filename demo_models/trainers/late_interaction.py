"""MiniLM as it is pretrained, whose vectors of tokens are compared one by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.demo_models.minilm import load_tokenizer, minilm
from hf_serve.demo_models.retrieval import Retrieval
from hf_serve.demo_models.synthetic_text.searches import ranking_measures, searches
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, forward

PASSAGES = 8


class LateInteraction(Trainer):
    """MiniLM without training: questions, and the passages that answer them among others."""

    plan = Plan(rows=1, batch=1, rate=0.0)
    evaluation_rows = 150

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM."""
        model: PreTrainedModel = AutoModel.from_pretrained(minilm())
        return model.eval(), load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Return nothing: the model is not trained."""
        return []

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Rank the passages of questions: how often the right one is first, and its mean rank."""
        held_out = searches("held_out", rows, PASSAGES, seed)
        asked = _vectors(model, tokenizer, [row.question for row in held_out])
        read = _vectors(model, tokenizer, [text for row in held_out for text in row.passages])
        scores = [
            float((asked[place // PASSAGES] @ vectors.T).amax(1).sum())
            for place, vectors in enumerate(read)
        ]
        return ranking_measures(scores, PASSAGES)

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write texts of different kinds and lengths."""
        return Retrieval().calibration_inputs(rows, seed)


def _vectors(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> list[Tensor]:
    """Return the normalized vectors of each text's tokens. Shape: (tokens, size)."""
    encoded = [dict(tokenizer(text)) for text in texts]
    return [
        torch.nn.functional.normalize(output["last_hidden_state"][: len(row["input_ids"])], dim=-1)
        for output, row in zip(forward(model, encoded), encoded, strict=True)
    ]


TRAINER = LateInteraction()
