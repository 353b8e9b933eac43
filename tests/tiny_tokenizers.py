"""Tiny tokenizers of the three usual kinds, with the words of a short text.

Long words split into subwords, and there are accents, Chinese characters and unknown ones.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

POSITIONS = 128
BERT = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
ROBERTA = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
TEXT = """\
Nina Vogel sings in the old bar near the river in Paris on Mondays.
Ada lives in Paris and works in London; her brother Tom lives in New York.
A fine film with a great cast, and the music is lovely.
A dull film: the plot is thin and the actors are bored.
The weather is nice today, it is a beautiful day for a walk in the park.
Who sings in the bar? Where does Ada live? When does Nina sing? What is dull?
Once upon a time there was a fox that lived near the river and sang to the moon.
The café in Zürich opens at nine; the naïve señor ordered a crème brûlée.
北京 是 中国 的 首都 。 我 住 在 上海 。
Bloomberg has reported on the economy, and the market was not amused.
Unbelievable! Unhappily, the unhappiest singers were singing unsingable songs.
""".splitlines()


def write_bert(folder: Path) -> dict[str, int]:
    """Write a WordPiece tokenizer; returns the values for the model's config."""
    words = _word_pieces([*BERT.values(), "[MASK]"])
    kernel = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    kernel.normalizer = normalizers.BertNormalizer(lowercase=True)
    kernel.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    kernel.decoder = decoders.WordPiece()
    pairs = [(token, words[token]) for token in ("[CLS]", "[SEP]")]
    kernel.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=pairs
    )
    _save(kernel, folder, "BertTokenizer", {**BERT, "mask_token": "[MASK]", "do_lower_case": True})
    return {"vocab_size": len(words), "pad_token_id": 0}


def write_tapas(folder: Path) -> dict[str, int]:
    """Write the vocabulary of a tokenizer of tables; returns the values for the model's config."""
    words = _word_pieces([*BERT.values(), "[MASK]", "[EMPTY]"])
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    settings = {"tokenizer_class": "TapasTokenizer", "model_max_length": POSITIONS}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return {"vocab_size": len(words), "pad_token_id": 0}


def _word_pieces(specials: list[str]) -> dict[str, int]:
    """Return every short word, subwords of four letters of longer ones, and each character."""
    words = {word for line in TEXT for word in re.findall(r"\w+|[^\w\s]", line.lower())}
    long = {word for word in words if len(word) > 5}
    subwords = {word[:4] for word in long}
    subwords |= {f"##{word[at : at + 4]}" for word in long for at in range(4, len(word), 4)}
    letters = set("".join(words)) | {f"##{letter}" for letter in "".join(words)}
    return {
        token: number
        for number, token in enumerate([*specials, *sorted(words - long | subwords | letters)])
    }


def write_roberta(folder: Path) -> dict[str, int]:
    """Write a byte-level BPE tokenizer with special tokens; returns the values for the config."""
    kernel = _byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    kernel.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    _save(kernel, folder, "RobertaTokenizer", {**ROBERTA, "mask_token": "<mask>"})
    sizes = {"vocab_size": kernel.get_vocab_size(), "type_vocab_size": 1, "pad_token_id": 1}
    return {**sizes, "max_position_embeddings": POSITIONS + 2}


def write_byte_level(folder: Path) -> dict[str, int]:
    """Write a byte-level BPE tokenizer as ModernBERT's; returns the values for the config."""
    kernel = _byte_level([*BERT.values(), "[MASK]"])
    pairs = [(token, kernel.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    kernel.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=pairs
    )
    names = {**BERT, "mask_token": "[MASK]", "model_input_names": ["input_ids", "attention_mask"]}
    _save(kernel, folder, "PreTrainedTokenizerFast", names)
    ids = {"cls_token_id": pairs[0][1], "sep_token_id": pairs[1][1]}
    return {"vocab_size": kernel.get_vocab_size(), "pad_token_id": 0, **ids}


def write_gpt2(folder: Path) -> int:
    """Write a byte-level BPE tokenizer without special tokens; returns the id of the end token."""
    end = "<|endoftext|>"
    kernel = _byte_level([end])
    tokens = dict.fromkeys(("bos_token", "eos_token", "unk_token"), end)
    _save(kernel, folder, "GPT2Tokenizer", tokens)
    return int(kernel.token_to_id(end))


def write_chat(folder: Path, length: int, *, pairs: bool = False) -> list[str]:
    """Write a byte-level BPE tokenizer with the marks of messages; returns its tokens in order.

    Args:
        length: the maximum number of tokens.
        pairs: whether it has special tokens around two texts.
    """
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    kernel = _byte_level(specials, [*TEXT, *["yes", "no", "Yes", "1", "0"] * 20])
    if pairs:
        ends = [(specials[1], 1), (specials[2], 2)]
        single = f"{specials[1]} $A {specials[2]}"
        kernel.post_processor = processors.TemplateProcessing(
            single=single, pair=f"{single} $B {specials[2]}", special_tokens=ends
        )
    settings = {"pad_token": specials[0], "eos_token": specials[2], "model_max_length": length}
    _save(kernel, folder, "PreTrainedTokenizerFast", settings)
    return [str(kernel.id_to_token(number)) for number in range(kernel.get_vocab_size())]


def write_llama(folder: Path) -> int:
    """Write a tokenizer as Llama's of SentencePiece; returns the id of its end token.

    A word begins with a mark in place of the space before it. A character that is no token is a
    token for each of its bytes.
    """
    specials = ["<unk>", "<s>", "</s>"]
    pieces = {f"\u2581{word}" for line in TEXT for word in line.split() if word.isascii()}
    letters = {letter for line in TEXT for letter in line if letter.isascii() and letter != " "}
    tokens = [*specials, *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["\u2581", *sorted(letters), *sorted(pieces - {f"\u2581{each}" for each in letters})]
    numbers = {token: number for number, token in enumerate(tokens)}
    merges = [
        (word[:end], word[end])
        for word in sorted(pieces)
        for end in range(1, len(word))
        if {word[:end], word[: end + 1]} <= numbers.keys()
    ]
    kernel = Tokenizer(models.BPE(numbers, merges, unk_token="<unk>", byte_fallback=True))
    kernel.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    kernel.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    kernel.add_special_tokens(specials)
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    _save(kernel, folder, "PreTrainedTokenizerFast", names)
    return numbers["</s>"]


def write_siglip(folder: Path) -> None:
    """Write a tokenizer of lower-case words with an end token, which is the padding, too."""
    end, unknown = "</s>", "<unk>"
    words = sorted({word for line in TEXT for word in re.findall(r"\w+", line.lower())})
    kernel = Tokenizer(
        models.WordLevel(
            {each: number for number, each in enumerate([unknown, end, *words])}, unknown
        )
    )
    kernel.normalizer = normalizers.Lowercase()
    kernel.pre_tokenizer = pre_tokenizers.Whitespace()
    kernel.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, 1)]
    )
    settings = {"eos_token": end, "pad_token": end, "unk_token": unknown}
    names = {"model_max_length": 64, "model_input_names": ["input_ids"]}
    _save(kernel, folder, "SiglipTokenizer", {**settings, **names})


def _byte_level(specials: list[str], text: list[str] = TEXT) -> Tokenizer:
    kernel = Tokenizer(models.BPE())
    kernel.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    kernel.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    kernel.train_from_iterator(text, trainer)
    return kernel


def _save(kernel: Tokenizer, folder: Path, name: str, settings: dict[str, Any]) -> None:
    kernel.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": name, "model_max_length": POSITIONS, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
