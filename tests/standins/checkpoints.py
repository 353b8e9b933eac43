"""Tiny checkpoints as they are on a hub, with files that are not required."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

CLUTTER = (
    "README.md",
    "modeling_custom.py",
    "onnx/model.onnx",
    "original/model.safetensors",
    "model.fp16.safetensors",
    "tf_model.h5",
    "flax_model.msgpack",
    "vocab.pkl",
    "training_args.bin",
)


def write_checkpoint(
    folder: Path,
    *,
    head: str = "SequenceClassification",
    pickle: bool = False,
    shards: bool = False,
) -> Path:
    """Write a DistilBERT of 32 dimensions with the head that is named; "" gives a base model."""
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=16, dim=32, hidden_dim=64, n_layers=1, n_heads=2
    )
    name = f"DistilBertFor{head}" if head else "DistilBertModel"
    model = getattr(transformers, name)(config)
    model.save_pretrained(folder, max_shard_size="8KB" if shards else "1GB")
    _tokenizer().save_pretrained(folder)
    if pickle:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    for clutter in CLUTTER:
        (folder / clutter).parent.mkdir(exist_ok=True)
        (folder / clutter).write_text(f"{clutter} is not needed")
    return folder


def write_config(path: Path, **handler: object) -> Path:
    """Write a YAML (JSON is YAML) for a sequence classifier called org/name, or as given."""
    given = {"mode": "sequence_classification", "model_name": "org/name", **handler}
    path.write_text(json.dumps({"handler": given}))
    return path


def _tokenizer() -> PreTrainedTokenizerFast:

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    kernel = Tokenizer(WordPiece({word: number for number, word in enumerate(words)}))
    kernel.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=kernel, pad_token="[PAD]", unk_token="[UNK]")
