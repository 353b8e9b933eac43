"""Tiny tokenizers of the three usual kinds, with the words of a short text.

Long words split into subwords, and there are accents, Chinese characters and unknown ones.
"""

from __future__ import annotations

import base64
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
# Of a model that reads a template.
LONG = 1024
# The words by which rerankers judge.
JUDGEMENTS = ["yes", "no", "Yes", "1", "0"]
MARK = "\u2581"
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
    kernel = _byte_level(specials, [*TEXT, *JUDGEMENTS * 20])
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
    kernel = _word_merges(["<unk>", "<s>", "</s>"])
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    _save(kernel, folder, "PreTrainedTokenizerFast", names)
    return int(kernel.token_to_id("</s>"))


def _word_merges(specials: list[str]) -> Tokenizer:
    """Return a tokenizer of the words of the text, of its characters, and of all bytes."""
    pieces = {f"{MARK}{word}" for line in TEXT for word in line.split() if word.isascii()}
    letters = {letter for line in TEXT for letter in line if letter.isascii() and letter != " "}
    tokens = [*specials, *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += [MARK, *sorted(letters), *sorted(pieces - {f"{MARK}{each}" for each in letters})]
    numbers = {token: number for number, token in enumerate(tokens)}
    merges = [
        (word[:end], word[end])
        for word in sorted(pieces)
        for end in range(1, len(word))
        if {word[:end], word[: end + 1]} <= numbers.keys()
    ]
    kernel = Tokenizer(models.BPE(numbers, merges, unk_token="<unk>", byte_fallback=True))
    kernel.normalizer = normalizers.Sequence(
        [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    )
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    kernel.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    kernel.add_special_tokens(specials)
    return kernel


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


def write_bert_cased(folder: Path) -> dict[str, int]:
    """Write BERT's tokenizer for texts that keep their upper case."""
    values = write_bert(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "do_lower_case": False}), encoding="utf-8")
    return values


def write_mpnet(folder: Path) -> dict[str, int]:
    """Write a WordPiece tokenizer with the special tokens of MPNet."""
    words = _word_pieces(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"])
    kernel = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    kernel.normalizer = normalizers.BertNormalizer(lowercase=True)
    kernel.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    kernel.decoder = decoders.WordPiece()
    kernel.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    _save(
        kernel, folder, "MPNetTokenizer", {**ROBERTA, "unk_token": "[UNK]", "mask_token": "<mask>"}
    )
    return {"vocab_size": len(words), "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


def write_colbert(folder: Path) -> dict[str, int]:
    """Write BERT's tokenizer with the two words that mark queries and documents."""
    values = write_bert(folder)
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    words = document["model"]["vocab"]
    words |= {f"[unused{number}]": len(words) + number for number in range(2)}
    path.write_text(json.dumps(document), encoding="utf-8")
    return {**values, "vocab_size": len(words)}


def write_xlm_roberta(folder: Path) -> dict[str, int]:
    """Write a unigram tokenizer with the special tokens of XLM-RoBERTa."""
    kernel = _unigram(["<s>", "<pad>", "</s>", "<unk>"], "<mask>")
    kernel.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    _save(kernel, folder, "XLMRobertaTokenizer", {**ROBERTA, "mask_token": "<mask>"})
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    return {"vocab_size": kernel.get_vocab_size(), **ids}


def write_deberta_v2(folder: Path) -> dict[str, int]:
    """Write a unigram tokenizer with the special tokens of DeBERTa."""
    kernel = _unigram(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], "[MASK]")
    kernel.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    _save(kernel, folder, "DebertaV2Tokenizer", {**BERT, "mask_token": "[MASK]"})
    return {"vocab_size": kernel.get_vocab_size(), "pad_token_id": 0}


def write_t5(folder: Path) -> dict[str, int]:
    """Write a unigram tokenizer with an end token, as T5 has it."""
    kernel = _unigram(["<pad>", "</s>", "<unk>"])
    kernel.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "extra_ids": 0}
    _save(kernel, folder, "T5Tokenizer", names)
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    return {"vocab_size": kernel.get_vocab_size(), **ids}


def write_modernbert(folder: Path, *more: str) -> dict[str, int]:
    """Write a byte-level BPE tokenizer with the special tokens of ModernBERT.

    Args:
        folder: the folder of the checkpoint.
        more: tokens at the end of the vocabulary.
    """
    kernel = _byte_level(["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"])
    kernel.add_tokens(list(more))
    kernel.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)],
    )
    names = {**BERT, "mask_token": "[MASK]", "model_input_names": ["input_ids", "attention_mask"]}
    _save(kernel, folder, "PreTrainedTokenizerFast", names)
    ids = {"pad_token_id": 2, "cls_token_id": 0, "sep_token_id": 1}
    return {"vocab_size": kernel.get_vocab_size(), "bos_token_id": 0, "eos_token_id": 1, **ids}


def write_modern_colbert(folder: Path) -> dict[str, int]:
    """Write ModernBERT's tokenizer with the words that mark queries and documents in PyLate."""
    return write_modernbert(folder, "[Q] ", "[D] ")


def write_qwen(folder: Path, *, ends: bool = False) -> dict[str, int]:
    """Write a byte-level BPE tokenizer with the special tokens of Qwen.

    Args:
        folder: the folder of the checkpoint.
        ends: whether a text has an end token, as in the models that make vectors.
    """
    end, start, stop = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
    kernel = _byte_level([end, start, stop])
    if ends:
        byte_level, add_end = (
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"$A {end}", pair=f"$A $B {end}", special_tokens=[(end, 0)]
            ),
        )
        kernel.post_processor = processors.Sequence([byte_level, add_end])
    names = {"eos_token": end if ends else stop, "pad_token": end, "padding_side": "left"}
    template = {} if ends else {"chat_template": CHATML}
    _save(kernel, folder, "Qwen2Tokenizer", {**names, **template})
    ids = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0 if ends else 2}
    return {"vocab_size": kernel.get_vocab_size(), **ids}


def write_qwen_reranker(folder: Path) -> dict[str, int]:
    """Write Qwen's tokenizer with the words by which rerankers judge."""
    tokens = write_chat(folder, LONG)
    ids = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 2}
    words = {word: tokens.index(word) for word in JUDGEMENTS}
    return {"vocab_size": len(tokens), "max_position_embeddings": LONG, **ids, **words}


def write_gemma_reranker(folder: Path) -> dict[str, int]:
    """Write a tokenizer with Gemma's special tokens and the words by which rerankers judge."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>"]
    kernel = _byte_level(specials, [*TEXT, *JUDGEMENTS * 20])
    kernel.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", 2)]
    )
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    _save(kernel, folder, "PreTrainedTokenizerFast", names)
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    return {"vocab_size": kernel.get_vocab_size(), "max_position_embeddings": LONG, **ids}


def write_qwen_embedding(folder: Path) -> dict[str, int]:
    """Write Qwen's tokenizer with an end token behind each text."""
    return write_qwen(folder, ends=True)


def write_gemma_embedding(folder: Path) -> dict[str, int]:
    """Write a tokenizer of words with the special tokens of Gemma around a text."""
    kernel = _word_merges(["<pad>", "<eos>", "<bos>", "<unk>"])
    kernel.normalizer = normalizers.Replace(" ", MARK)
    kernel.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>",
        pair="<bos> $A <eos> <bos>:1 $B:1 <eos>:1",
        special_tokens=[("<bos>", 2), ("<eos>", 1)],
    )
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>"}
    flags = {"unk_token": "<unk>", "add_bos_token": True, "add_eos_token": True}
    _save(kernel, folder, "GemmaTokenizer", {**names, **flags})
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    return {"vocab_size": kernel.get_vocab_size(), **ids}


def write_gemma(folder: Path) -> dict[str, int]:
    """Write Gemma's tokenizer with a token before a text and none behind it."""
    values = write_gemma_embedding(folder)
    path = folder / "tokenizer.json"
    kernel = Tokenizer.from_file(str(path))
    kernel.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", 2)]
    )
    kernel.save(str(path))
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "add_eos_token": False}), encoding="utf-8")
    return values


def write_siglip2(folder: Path) -> dict[str, int]:
    """Write Gemma's tokenizer as SigLIP 2 has it: with a token behind a text, and in capitals."""
    values = write_gemma_embedding(folder)
    path = folder / "tokenizer.json"
    kernel = Tokenizer.from_file(str(path))
    kernel.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", 1)]
    )
    kernel.save(str(path))
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    of_texts = {"add_bos_token": False, "do_lower_case": True, "padding_side": "right"}
    names = {"model_input_names": ["input_ids"]}
    path.write_text(json.dumps({**settings, **of_texts, **names}), encoding="utf-8")
    return values


def write_mistral_embedding(folder: Path) -> dict[str, int]:
    """Write a tokenizer as Llama's of SentencePiece, with special tokens around a text."""
    write_llama(folder)
    path = folder / "tokenizer.json"
    kernel = Tokenizer.from_file(str(path))
    kernel.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> <s>:1 $B:1 </s>:1",
        special_tokens=[("<s>", 1), ("</s>", 2)],
    )
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    flags = {"add_bos_token": True, "add_eos_token": True}
    _save(kernel, folder, "LlamaTokenizer", {**names, **flags})
    ids = {"pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
    return {"vocab_size": kernel.get_vocab_size(), **ids}


def write_nllb(folder: Path) -> dict[str, int]:
    """Write NLLB's tokenizer, with a token for each language in front of a text."""
    kernel = _word_merges(["<s>", "<pad>", "</s>", "<unk>"])
    kernel.add_special_tokens(["eng_Latn", "deu_Latn", "<mask>"])
    names = {**ROBERTA, "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
    _save(kernel, folder, "NllbTokenizer", names)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    return {"vocab_size": kernel.get_vocab_size(), **ids}


CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def _unigram(specials: list[str], last: str | None = None) -> Tokenizer:
    """Return a tokenizer of words and characters, as SentencePiece makes it.

    Args:
        specials: the first tokens, the unknown one at the end.
        last: the token at the end of the vocabulary.
    """
    words = sorted({f"{MARK}{word}" for line in TEXT for word in re.findall(r"\w+", line)})
    letters = sorted({letter for line in TEXT for letter in line if letter != " "} | {MARK})
    pieces = [(each, 0.0) for each in specials]
    pieces += [(each, -4.0) for each in words if len(each) < 9]
    pieces += [(each, -8.0) for each in letters]
    pieces += [(last, 0.0)] if last else []
    kernel = Tokenizer(models.Unigram(pieces, len(specials) - 1))
    kernel.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement=MARK)]
    )
    kernel.decoder = decoders.Metaspace(replacement=MARK)
    kernel.add_special_tokens([*specials, *([last] if last else [])])
    return kernel


def write_blip(folder: Path) -> dict[str, int]:
    """Write BERT's tokenizer with the ends of the texts that BLIP writes."""
    return {**write_bert(folder), "bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}


def write_sentencepiece(folder: Path, kind: str) -> int:
    """Write the SentencePiece files of a translation model, without a `tokenizer.json`.

    Returns the number of its tokens.
    """
    path = Path(__file__).parent / "reference" / "sentencepiece.jsonl"
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    found = next(each for each in rows if (each["class"], each["kind"]) == (kind, "unigram"))
    for name, content in found["files"].items():
        (folder / name).write_bytes(base64.b64decode(content))
    for name, document in found["documents"].items():
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    return 1 + max(number for _, ids in found["rows"] for number in ids)


def write_marian(folder: Path) -> dict[str, int]:
    """Write two SentencePiece files and a shared vocabulary."""
    write_sentencepiece(folder, "MarianTokenizer")
    names = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    pad, end = names["<pad>"], names["</s>"]
    ids = {"pad_token_id": pad, "eos_token_id": end, "bos_token_id": end}
    return {"vocab_size": len(names), "decoder_start_token_id": pad, **ids}
