"""Texts become the tokens that the tokenizer.json of a checkpoint says, whatever class it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection

# The splits of Llama 3 and of many other models, and those of StarCoder and SmolLM.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
LLAMA_3 = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"), BYTES])
DIGITS = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
)
TEXTS = ("Nina sings 12345 times", "Don't! I'LL\n\n  x = 10;", " Über  1234567", "zwölf\té")
END, START = "<|end_of_text|>", "<|begin_of_text|>"
# DeepSeek-R1-Distill-Llama, Granite 4, EXAONE 4, and others whose class splits as the file says.
CASES = {
    "r1-distill-llama": ("llama", "LlamaTokenizerFast", LLAMA_3),
    "granite-4": ("granitemoehybrid", "GPT2Tokenizer", LLAMA_3),
    "exaone-4": ("exaone4", "GPT2Tokenizer", LLAMA_3),
    "gpt-neox": ("gpt_neox", "GPTNeoXTokenizerFast", LLAMA_3),
    "smollm2": ("llama", "GPT2Tokenizer", DIGITS),
    "llama-3": ("llama", "PreTrainedTokenizerFast", LLAMA_3),
    "gpt2": ("gpt2", "GPT2Tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=False)),
}


def write(folder: Path, name: str) -> Tokenizer:
    """Write a tokenizer with a split of texts and the class that a checkpoint names."""
    model_type, kind, splits = CASES[name]
    kernel = Tokenizer(models.BPE(ignore_merges=True))
    kernel.pre_tokenizer, kernel.decoder = splits, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer: Any = trainers.BpeTrainer(
        vocab_size=500, special_tokens=[END, START], initial_alphabet=alphabet, show_progress=False
    )
    kernel.train_from_iterator([*TEXTS, "12345 123456 1234567\n\n  x"] * 3, trainer)
    kernel.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": kind, "bos_token": START, "eos_token": END, "legacy": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    return kernel


@pytest.mark.parametrize("name", CASES)
def test_the_tokens_of_a_text_are_those_of_the_file(tmp_path: Path, name: str) -> None:
    published = write(tmp_path, name)
    handler = HandlerSection(mode="text_generation")
    tokenizer = Checkpoint.read(tmp_path, handler).tokenizer
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert ids == published.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == text
    marked = tokenizer(f"{START}Nina{END}", add_special_tokens=False)["input_ids"]
    assert [marked[0], marked[-1]] == [1, 0]
