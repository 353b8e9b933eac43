"""Train small SentencePiece models, tokenize with transformers 4 and write sentencepiece.jsonl.

pip install 'transformers<5' sentencepiece protobuf
python tests/reference/make_sentencepiece.py
"""

# ruff: noqa: E402 - the path to the repository comes first
from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import transformers

from tests.tiny_tokenizers import TEXT

# Only this script needs it.
SENTENCEPIECE: Any = import_module("sentencepiece")

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
OTHER_LANGUAGES = [
    "Nina singt in der alten Bar am Fluß.",
    "Ada vit à Paris, et son frère vit à New York.",
    "Wo singt Nina? Tom wohnt in Köln.",
]
# A small map of characters, in place of SentencePiece's own of 240 kB.
CHARACTERS = {"\uff26": "F", "\ufb01": "fi", "\u2026": "...", "\n": " ", "\t": " "}
TEXTS = [
    "Nina sings in the old bar.",
    "Ada vit à  Paris,\n et Tom",
    "Unbelievable! \ufb01ne \uff26\u2026 北京 是 xyz☃☃q",
    "  lead and trail  ",
    "a</s>b",
    "",
    " ",
    ">>de<< Nina sings",
    "☃ 上海 brother's Fluß",
    "Who sings? <unk> x",
]
LEFT_OUT = 8
MODEL = "sentencepiece.bpe.model"


def main() -> None:
    """Write the data file."""
    assert transformers.__version__.startswith("4."), "transformers 4 is the reference"
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # Trained models name the files that they were made from.
        parts = [part for kind in ("unigram", "bpe") for part in _parts(Path(), kind)]
        parts.append(_deberta(Path()))
    lines = (json.dumps(part, ensure_ascii=False) + "\n" for part in parts)
    (HERE / "sentencepiece.jsonl").write_text("".join(lines), encoding="utf-8")


def _parts(place: Path, kind: str) -> list[dict[str, Any]]:
    model = _train(place / f"all-{kind}", kind, [*TEXT, *OTHER_LANGUAGES], 190)
    source = _train(place / f"source-{kind}", kind, TEXT, 150)
    target = _train(place / f"target-{kind}", kind, OTHER_LANGUAGES, 80)
    shared = ["</s>", "<unk>", ">>de<<", *_known([source, target])[:-LEFT_OUT], "<pad>"]
    marian = {"source.spm": source, "target.spm": target, "vocab.json": _ids(place, shared)}
    m2m = {MODEL: model, "vocab.json": _ids(place, [*SPECIAL, *_known([model])[:-LEFT_OUT]])}
    codes = import_module("transformers.models.m2m_100.tokenization_m2m_100")
    languages = [f"__{code}__" for code in codes.FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    named = {"special_tokens_map.json": {"additional_special_tokens": languages}}
    return [
        _part(kind, "MarianTokenizer", marian, [source, target, marian["vocab.json"]], {}),
        _part(kind, "M2M100Tokenizer", m2m, [m2m["vocab.json"], model], named),
        _part(kind, "NllbTokenizer", {MODEL: model}, [model], {}),
        _part(kind, "MBart50Tokenizer", {MODEL: model}, [model], {}),
        _part(kind, "MBartTokenizer", {MODEL: model}, [model], {}),
    ]


def _deberta(place: Path) -> dict[str, Any]:
    """Return the files of a DeBERTa, with the tokens of the fast tokenizer."""
    names = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
    special: dict[str, Any] = {f"{name}_id": number for number, name in enumerate(names)}
    special |= {f"{name}_piece": token for name, token in names.items()}
    texts = [*TEXT, *OTHER_LANGUAGES]
    path = _train(place / "spm", "unigram", texts, 450, byte_fallback=True, **special)
    tokenizer = transformers.DebertaV2TokenizerFast(vocab_file=str(path))
    return {
        "class": "DebertaV2Tokenizer",
        "kind": "unigram",
        "files": {"spm.model": base64.b64encode(path.read_bytes()).decode()},
        "documents": {
            "tokenizer_config.json": {"do_lower_case": False, "vocab_type": "spm"},
            "config.json": {"model_type": "deberta-v2"},
        },
        "rows": [[text, tokenizer(text)["input_ids"]] for text in TEXTS],
    }


def _part(
    kind: str, name: str, files: dict[str, Path], given: list[Path], documents: dict[str, Any]
) -> dict[str, Any]:
    tokenizer = getattr(transformers, name)(*map(str, given))
    packed = {file: base64.b64encode(path.read_bytes()).decode() for file, path in files.items()}
    settings = {"tokenizer_config.json": {"tokenizer_class": name}}
    if name == "NllbTokenizer":
        # Published checkpoints have the mask after the languages, where this version puts it first.
        codes = import_module("transformers.models.nllb.tokenization_nllb").FAIRSEQ_LANGUAGE_CODES
        tokenizer = _published(tokenizer, files[MODEL], codes)
    return {
        "class": name,
        "kind": kind,
        "files": packed,
        "documents": {**settings, **documents},
        "rows": [[text, tokenizer(text)["input_ids"]] for text in TEXTS],
    }


def _published(tokenizer: Any, model: Path, codes: list[str]) -> Any:
    first = tokenizer.sp_model_size + tokenizer.fairseq_offset
    added = {first + number: code for number, code in enumerate([*codes, "<mask>"])}
    decoder = {**tokenizer.added_tokens_decoder} | {
        number: transformers.AddedToken(token, special=True, normalized=False)
        for number, token in added.items()
    }
    return transformers.NllbTokenizer(str(model), added_tokens_decoder=decoder)


def _train(place: Path, kind: str, texts: list[str], size: int, **options: Any) -> Path:
    rules = place.with_suffix(".tsv")
    spelled = ((_codes(old), _codes(new)) for old, new in CHARACTERS.items())
    rules.write_text("".join(f"{old}\t{new}\n" for old, new in spelled), encoding="utf-8")
    SENTENCEPIECE.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 3),
        model_prefix=str(place),
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        normalization_rule_tsv=str(rules),
        minloglevel=2,
        **options,
    )
    return place.with_name(f"{place.name}.model")


def _codes(text: str) -> str:
    return " ".join(f"{ord(character):x}" for character in text)


def _known(models: list[Path]) -> list[str]:
    """Return the pieces of models, sorted, without special tokens."""
    found: set[str] = set()
    for path in models:
        pieces = SENTENCEPIECE.SentencePieceProcessor(model_file=str(path))
        found |= {pieces.id_to_piece(number) for number in range(pieces.get_piece_size())}
    return sorted(found - set(SPECIAL))


def _ids(place: Path, tokens: list[str]) -> Path:
    path = place / f"vocab-{len(tokens)}.json"
    numbers = {token: number for number, token in enumerate(tokens)}
    path.write_text(json.dumps(numbers, ensure_ascii=False), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
