"""Create the causal language models to measure: seeded random weights, and a tokenizer of words."""

from __future__ import annotations

import random
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    GPT2Config,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

PADDING, UNKNOWN = SPECIAL_TOKENS = ("[PAD]", "[UNK]")
FIRST_WORD = len(SPECIAL_TOKENS)  # the id of the first token that is a word
LETTERS = (3, 8)  # of a word
# No token ends a text, so that each contender generates the number of tokens that is asked for.
ENDLESS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
DESCRIPTIONS = {
    "distilgpt2": "The architecture of distilgpt2, 82 million parameters, untrained.",
    "qwen2": "The architecture of Qwen2 0.5B, 494 million parameters, untrained.",
}
MODELS = tuple(DESCRIPTIONS)
# As the checkpoints of that name are distributed.
DTYPES = {"distilgpt2": torch.float32, "qwen2": torch.bfloat16}


def config_of(name: str, *, tiny: bool = False, **others: int) -> PreTrainedConfig:
    """Return the config of a model, or of a tiny one of its architecture, with other sizes."""
    if name == "distilgpt2":
        small = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 512} if tiny else {}
        return GPT2Config(**{"n_layer": 6, **small, **others}, **ENDLESS)
    sizes = {
        "hidden_size": 64 if tiny else 896,
        "num_hidden_layers": 2 if tiny else 24,
        "num_attention_heads": 2 if tiny else 14,
        "num_key_value_heads": 1 if tiny else 2,
        "intermediate_size": 128 if tiny else 4864,
        "vocab_size": 512 if tiny else 151936,
    }
    return Qwen2Config(**{**sizes, **others}, tie_word_embeddings=True, **ENDLESS)


def language_model(target: Path, name: str, *, tiny: bool = False, **others: int) -> Path:
    """Create a model unless it exists; return its folder."""
    if not (target / "tokenizer.json").is_file():
        torch.manual_seed(0)
        config = config_of(name, tiny=tiny, **others)
        model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[name])
        model.generation_config = GenerationConfig(**ENDLESS)
        model.save_pretrained(target)
        word_tokenizer(config.vocab_size).save_pretrained(target)
    return target


def word_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each word of a seeded vocabulary.

    Any ids decode to a text that is encoded to the same ids, special tokens excepted.
    """
    entries = [*SPECIAL_TOKENS, *_words(size - FIRST_WORD)]
    model = WordLevel({entry: index for index, entry in enumerate(entries)}, unk_token=UNKNOWN)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PADDING, unk_token=UNKNOWN, padding_side="left"
    )


def _words(count: int) -> list[str]:
    generator, words = random.Random(0), dict[str, None]()
    while len(words) < count:
        length = generator.randint(*LETTERS)
        words["".join(generator.choices(ascii_lowercase, k=length))] = None
    return list(words)
