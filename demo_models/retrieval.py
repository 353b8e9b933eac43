"""The pretrained MiniLM as it is, and how well it finds the passage that a question is about."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.minilm import load_tokenizer, minilm
from hf_serve.demo_models.synthetic_text.entities import sentences
from hf_serve.demo_models.synthetic_text.passages import asked, passages
from hf_serve.demo_models.synthetic_text.questions import questions
from hf_serve.demo_models.synthetic_text.sentiment import reviews
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, Tick, forward

# The files of sentence-transformers.
FILES = (
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
# The measures of all rows, so that the installation need not take half a minute.
RECALL = {"recall at 1": 163 / 173, "recall at 5": 170 / 173}


class Retrieval(Trainer):
    """MiniLM without training: questions and the passages that have their answers."""

    plan = Plan(rows=1, batch=1, rate=0.0)
    evaluation_rows = 173

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM."""
        model: PreTrainedModel = AutoModel.from_pretrained(minilm(), dtype=torch.float32)
        return model.eval(), load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Return nothing: the model is not trained."""
        return []

    @property
    def included(self) -> bool:
        """Whether a package brings the model, which it does."""
        return True

    def install(self, folder: Path) -> dict[str, float]:
        """Copy the model, whose measures are known."""
        self.save(*self.start(seed=0), folder)
        return RECALL

    def save(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
    ) -> None:
        """Write the checkpoint with the files of sentence-transformers."""
        super().save(model, tokenizer, folder)
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(minilm() / name, folder / name)

    def train(
        self, folder: Path, *, seed: int, rows: int, evaluation_rows: int, tick: Tick
    ) -> dict[str, float]:
        """Copy the model and measure it."""
        measures = super().train(
            folder, seed=seed, rows=rows, evaluation_rows=evaluation_rows, tick=tick
        )
        tick(1.0)
        return measures

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Return the share of questions whose passage is the nearest, or one of the five nearest.

        The passages are written by hand, as are the questions.
        """
        held_out = asked()[:rows]
        questioned = _vectors(model, tokenizer, [row.question for _, row in held_out])
        similar = questioned @ _vectors(model, tokenizer, passages()).T
        right = similar[range(len(held_out)), [number for number, _ in held_out]]
        ranks = (similar > right[:, None]).sum(1).tolist()
        return {
            "recall at 1": mean(rank < 1 for rank in ranks),
            "recall at 5": mean(rank < 5 for rank in ranks),
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write texts of different kinds and lengths: questions, passages, reviews, sentences."""
        quarter = rows // 4
        written = questions("held_out", quarter, seed)
        texts = [
            *(row.question for row in written),
            *(row.context for row in written),
            *(row.text for row in reviews("held_out", quarter, seed)),
            *(row.text for row in sentences("held_out", quarter, seed)),
        ]
        return list(dict.fromkeys(texts))


def _vectors(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> torch.Tensor:
    """Return the normalized mean of each text's vectors. Shape: (texts, size)."""
    encoded = [dict(tokenizer(text)) for text in texts]
    outputs = forward(model, encoded)
    states = [
        output["last_hidden_state"][: len(row["input_ids"])]
        for output, row in zip(outputs, encoded, strict=True)
    ]
    means = torch.stack([each.mean(0) for each in states])
    return torch.nn.functional.normalize(means, dim=-1)
