"""A tiny GPT-2 with its own tokenizer learns to write short stories."""

from __future__ import annotations

import math
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.implementations import ByteLevelBPETokenizer
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2TokenizerFast,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_serve.demo_models.shipped import ShippedTrainer
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.stories import library, stories
from hf_serve.demo_models.training import Feature, Plan, chunks, collate, to_device

END = "<|endoftext|>"
# The texts of a chat are the beginning of a story. Of tools it has the names alone: their schemas
# would fill most positions.
CHAT_TEMPLATE = (
    "{% if tools %}{{ tools | map(attribute='function.name') | join(' ') }} {% endif %}"
    "{{ messages | map(attribute='content') | join(' ') }}"
)
ENTRIES = 2000
POSITIONS = 256
UNKNOWN_WORDS = "perplexity of unknown words"


class TextGeneration(ShippedTrainer):
    """One text for each row, with the end token after it."""

    plan = Plan(rows=3200, batch=8, rate=2e-3)
    evaluation_rows = 240
    whole = True

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return a GPT-2 with random weights, and a tokenizer trained on the texts."""
        tokenizer = _wrapped(_trained(library("train", self.plan.rows, seed)))
        return _model(tokenizer), tokenizer

    def rebuild(self, tokenizer: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return a GPT-2 with random weights, and the tokenizer."""
        wrapped = _wrapped(Tokenizer.from_str(tokenizer))
        return _model(wrapped), wrapped

    def quality(self, measures: dict[str, float]) -> float:
        """Return a number that is higher where the perplexity of unknown words is lower."""
        return -measures[UNKNOWN_WORDS]

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write texts; every token is predicted from those before it."""
        return _encode(tokenizer, "train", rows, seed)

    def measure(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        split: Split,
        rows: int,
        seed: int,
    ) -> dict[str, float]:
        """Measure the perplexity of a token in new stories with the words of training.

        The second measure is on other sentence patterns and words.
        """
        return {
            "perplexity": _perplexity(model, _encode(tokenizer, "train", rows, seed + 1)),
            UNKNOWN_WORDS: _perplexity(model, _encode(tokenizer, split, rows, seed)),
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write stories, fewer because each is long that are not among the training rows."""
        return stories("held_out", rows // 4, seed)


TRAINER = TextGeneration()


def _model(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    end = tokenizer.eos_token_id
    special = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    shape = {"n_positions": POSITIONS, "n_embd": 192, "n_layer": 5, "n_head": 6}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **shape, **special))
    model.generation_config = GenerationConfig(**special)
    return model


def _trained(texts: list[str]) -> Tokenizer:
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(texts, ENTRIES, special_tokens=[END], show_progress=False)
    return Tokenizer.from_str(trained.to_str())


def _wrapped(kernel: Tokenizer) -> PreTrainedTokenizerBase:
    return GPT2TokenizerFast(
        tokenizer_object=kernel,
        bos_token=END,
        eos_token=END,
        unk_token=END,
        pad_token=END,
        model_max_length=POSITIONS,
        chat_template=CHAT_TEMPLATE,
    )


def _encode(
    tokenizer: PreTrainedTokenizerBase, split: Split, rows: int, seed: int
) -> list[Feature]:
    texts = library(split, rows, seed)
    encoded = [tokenizer(text + END, truncation=True) for text in texts]
    return [{**features, "labels": features["input_ids"]} for features in encoded]


@torch.inference_mode()
def _perplexity(model: PreTrainedModel, features: list[Feature]) -> float:
    loss, tokens = 0.0, 0
    for rows in chunks(features, 16):
        batch = to_device(collate(rows, model.config.pad_token_id), model.device)
        predicted = int((batch["labels"][:, 1:] != -100).sum())
        loss += float(model(**batch).loss) * predicted
        tokens += predicted
    return math.exp(loss / tokens)
