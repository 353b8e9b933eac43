"""Tokenizers as the files of their checkpoints say.

transformers 5 reads only the vocabulary in `tokenizer.json` for most classes, and each class splits
texts in its own way. Many checkpoints name a class for its special tokens:
DeepSeek-R1-Distill-Llama names Llama 2's, and Granite 4 names GPT-2's. Their texts would become
other tokens than in training, so the splits of the file are restored.

Other models have SentencePiece files and no `tokenizer.json`. transformers has no fast tokenizer
for Marian and M2M100, and makes NLLB's, mBART's and DeBERTa's with packages that are not installed
here. This module makes all of them from the files themselves.

Token ids are those of transformers' slow tokenizers, but for texts with characters that the
SentencePiece model of the source language does not know: where the shared vocabulary of a Marian
model has them, they are found one by one, and not in whole runs. For DeBERTa they are the ids of
the fast tokenizer of transformers 4, for which a character without a token is unknown.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..compat.transformers import (
    MBART50_CODES,
    MBART_CODES,
    NLLB_CODES,
    LimitedTokenizer,
    ModelProto,
    TrainerSpec,
)
from ..config.documents import read_json
from ..config.messages import enumerate_names
from ..errors import WrongCheckpoint

FILE, KEY = "tokenizer.json", '"pre_tokenizer":'
# What a split depends on. Spaces and offsets are settings of a class.
SETTINGS = ("type", "pattern", "behavior", "invert", "individual_digits", "use_regex")
# The splits at spaces, which are no split of BPE: its pieces begin with them.
OF_SPACES = ("Metaspace",)
SPACE = {"String": " "}
Splits = list[dict[str, Any]]


def restore_splits(tokenizer: PreTrainedTokenizerBase, directory: Path) -> None:
    """Make a tokenizer of BPE split texts as the `tokenizer.json` of its checkpoint says."""
    path = directory / FILE
    if not tokenizer.is_fast or not path.is_file():
        return
    kernel: Any = tokenizer.backend_tokenizer
    published = _published_splits(path.read_text(encoding="utf-8"))
    if not isinstance(kernel.model, models.BPE) or published in (None, _splits(kernel)):
        return
    given: Any = Tokenizer.from_file(str(path))
    if isinstance(given.model, models.BPE):
        kernel.model, kernel.normalizer = given.model, given.normalizer
        kernel.pre_tokenizer, kernel.decoder = given.pre_tokenizer, given.decoder


def read_in_lower_case(tokenizer: PreTrainedTokenizerBase) -> None:
    """Have a tokenizer read all letters in lower case; offsets still refer to the text.

    Raises:
        WrongCheckpoint: it is one in Python, which has no such step.
    """
    if not tokenizer.is_fast:
        raise WrongCheckpoint(
            "tokenizer",
            f"{type(tokenizer).__name__} cannot read in lower case, as do_lower_case of the"
            " checkpoint says",
            "serve a checkpoint with a tokenizer.json",
        )
    kernel: Any = tokenizer.backend_tokenizer
    own = [kernel.normalizer] if kernel.normalizer is not None else []
    kernel.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])


def _published_splits(text: str) -> Splits | None:
    """Return the splits in the text of a file, without reading its vocabulary; None if it has none.

    The file has its vocabulary last.
    """
    start = text.find(KEY)
    with suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):
        value, _ = json.JSONDecoder().raw_decode(text[start + len(KEY) :].lstrip())
        return _flat(value) if start >= 0 else None
    return None


def _splits(kernel: Any) -> Splits:
    """Return the splits of a tokenizer."""
    empty: Any = Tokenizer(models.BPE())
    if kernel.pre_tokenizer is not None:
        empty.pre_tokenizer = kernel.pre_tokenizer
    return _flat(json.loads(empty.to_str())["pre_tokenizer"])


def _flat(value: Any) -> Splits:
    if value is None:
        return []
    if value["type"] == "Sequence":
        return [each for part in value["pretokenizers"] for each in _flat(part)]
    if value["type"] in OF_SPACES or value.get("pattern") == SPACE:
        return []
    return [{name: value[name] for name in SETTINGS if name in value}]


FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
UNKNOWN = "<unk>"
END = "</s>"
MASK = "<mask>"
# Less than any sum of scores of pieces: a token with it is found for unknown characters only.
LOWEST_SCORE = -1e4
# The special tokens by the names that tokenizers have for them.
NAMED = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": END,
    "unk_token": UNKNOWN,
    "mask_token": MASK,
}
DEBERTA = {
    **dict.fromkeys(("bos_token", "cls_token"), "[CLS]"),
    **dict.fromkeys(("eos_token", "sep_token"), "[SEP]"),
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}
# The classes of tokenizers of model types whose settings may name none.
OF_MODEL_TYPES = {
    "deberta-v2": "DebertaV2Tokenizer",
    "marian": "MarianTokenizer",
    "mbart": "MBartTokenizer",
}
NORMAL = ModelProto.SentencePiece.NORMAL


@dataclass(frozen=True)
class SentencePieceModel:
    """What a SentencePiece file has.

    Attributes:
        pieces: the score of each piece, in order; without control symbols.
        names: all pieces in order.
        has_merges: it was trained with byte-pair encoding; otherwise with a unigram model.
        characters: the compiled map of characters to normalize; empty for none.
        trims: spaces at the ends, and repeated ones, are removed.
    """

    pieces: Mapping[str, float]
    names: Sequence[str]
    has_merges: bool
    characters: bytes
    trims: bool

    @classmethod
    def read(cls, path: Path, *, without_bytes: bool = False) -> SentencePieceModel:
        """Read a file.

        Args:
            without_bytes: whether a character that is no piece is unknown, also where the model
                has a piece for each of its bytes.

        Raises:
            ValueError: it is not one, or has a kind of model that no fast tokenizer equals.
        """
        try:
            model = ModelProto.FromString(path.read_bytes())
        except DecodeError:
            raise ValueError(f"{path.name} is not a SentencePiece model") from None
        trainer, normalizer = model.trainer_spec, model.normalizer_spec
        has_bytes = trainer.byte_fallback and not without_bytes
        is_plain = normalizer.add_dummy_prefix and not has_bytes
        if trainer.model_type not in (TrainerSpec.UNIGRAM, TrainerSpec.BPE) or not is_plain:
            raise ValueError(f"{path.name} is neither a plain unigram model nor one of pairs")
        scores = {piece.piece: piece.score for piece in model.pieces if piece.type == NORMAL}
        if not scores:
            raise ValueError(f"{path.name} has no pieces")
        return cls(
            scores,
            [piece.piece for piece in model.pieces],
            trainer.model_type == TrainerSpec.BPE,
            normalizer.precompiled_charsmap,
            normalizer.remove_extra_whitespaces,
        )

    def tokenizer(self, tokens: Sequence[str], unknown: str) -> Tokenizer:
        """Return a tokenizer whose ids are the places of the tokens, which include all pieces."""
        make = self._pairs if self.has_merges else self._unigram
        tokenizer = Tokenizer(make(tokens, unknown))
        steps: list[Any] = [normalizers.Precompiled(self.characters)] if self.characters else []
        if self.trims:
            steps += [
                normalizers.Replace(Regex("^ +| +$"), ""),
                normalizers.Replace(Regex(" {2,}"), " "),
            ]
        tokenizer.normalizer = normalizers.Sequence(steps)
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        return tokenizer

    def _unigram(self, tokens: Sequence[str], unknown: str) -> Unigram:
        scores = [(token, self._unigram_score(token)) for token in tokens]
        return Unigram(scores, unk_id=tokens.index(unknown), byte_fallback=False)

    def _unigram_score(self, token: str) -> float:
        """Return the score of a piece; a token that is none never wins over its characters."""
        other = LOWEST_SCORE if len(token) == 1 else 2 * LOWEST_SCORE * len(token)
        return self.pieces.get(token, other)

    def _pairs(self, tokens: Sequence[str], unknown: str) -> BPE:
        ids = {token: number for number, token in enumerate(tokens)}
        return BPE(ids, self._merges(), unk_token=unknown, fuse_unk=True)

    def _merges(self) -> list[tuple[str, str]]:
        """Return the pairs that make a piece; a higher score is merged earlier."""
        best_first = sorted(self.pieces, key=lambda piece: -self.pieces[piece])
        splits = ((piece[:at], piece[at:]) for piece in best_first for at in range(1, len(piece)))
        return [pair for pair in splits if pair[0] in self.pieces and pair[1] in self.pieces]


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model in the order of their ids, and those that are found in any text.

    Attributes:
        special: the tokens of languages, which have no text.
        codes: those that a text begins with, such as `>>fra<<`.
    """

    tokens: Sequence[str]
    special: Sequence[str] = ()
    codes: Sequence[str] = ()


@dataclass(frozen=True)
class Family:
    """How the tokenizers of one class are made.

    Attributes:
        file: the SentencePiece model of the text that is read.
        vocabulary: reads the tokens of a checkpoint.
        template: the special tokens around a text, `$A`; `{source}` is the token of its language.
        source: the language of a text where the checkpoint sets none.
        code: how a language is written as a token.
        named: the special tokens by the names that tokenizers have for them.
        without_bytes: whether a character that is no piece is unknown.
    """

    file: str
    vocabulary: Callable[[Path, SentencePieceModel], Vocabulary]
    template: str
    source: str = ""
    code: str = "{}"
    named: Mapping[str, str] = field(default_factory=lambda: NAMED)
    without_bytes: bool = False


def has_sentencepiece_only(directory: Path) -> bool:
    """Return whether a checkpoint is one whose tokenizer :func:`read_tokenizer` makes."""
    if (directory / "tokenizer.json").exists():
        return False
    name = _class_name(directory)
    return name in FAMILIES and (directory / FAMILIES[name].file).is_file()


def read_tokenizer(directory: Path, settings: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a checkpoint; the settings come before the checkpoint's.

    Raises:
        ValueError: its files are damaged, or of a kind that this does not read.
    """
    family = FAMILIES[_class_name(directory)]
    own = _document(directory / "tokenizer_config.json")
    path = directory / family.file
    model = SentencePieceModel.read(path, without_bytes=family.without_bytes)
    vocabulary = family.vocabulary(directory, model)
    extra = [piece for piece in model.pieces if piece not in set(vocabulary.tokens)]
    backend = model.tokenizer([*vocabulary.tokens, *extra], family.named["unk_token"])
    backend.add_tokens([AddedToken(code, normalized=False) for code in vocabulary.codes])
    known_tokens = set(vocabulary.tokens)
    named = {name: token for name, token in family.named.items() if token in known_tokens}
    special = [*named.values(), *vocabulary.special]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    source = family.code.format(own.get("src_lang") or family.source)
    _add_template(backend, family.template.format(source=source))
    known = {"model_max_length": own.get("model_max_length"), **settings}
    tokenizer = LimitedTokenizer(
        tokenizer_object=backend,
        extra_special_tokens=list(vocabulary.special),
        **named,
        **{name: value for name, value in known.items() if value is not None},
    )
    # Tokens that are added later have ids behind the last one of the model.
    tokenizer.ids = len(vocabulary.tokens) if extra else sys.maxsize
    return tokenizer


def _class_name(directory: Path) -> str:
    """Return the name of transformers' slow tokenizer for a checkpoint."""
    config = _document(directory / "config.json")
    named = _document(directory / "tokenizer_config.json").get("tokenizer_class")
    name = named or config.get("tokenizer_class")
    if isinstance(name, str):
        return name.removesuffix("Fast")
    if config.get("model_type") == "m2m_100":
        return "M2M100Tokenizer" if (directory / "vocab.json").is_file() else "NllbTokenizer"
    return OF_MODEL_TYPES.get(str(config.get("model_type")), "")


def _marian(directory: Path, model: SentencePieceModel) -> Vocabulary:
    if _document(directory / "tokenizer_config.json").get("separate_vocabs"):
        raise ValueError("its two languages have vocabularies of their own")
    tokens = _listed(directory / "vocab.json")
    codes = [each for each in tokens if each.startswith(">>") and each.endswith("<<")]
    return Vocabulary(tokens, codes=codes)


def _m2m100(directory: Path, model: SentencePieceModel) -> Vocabulary:
    found = [
        _document(directory / name).get(key) or []
        for name in ("special_tokens_map.json", "tokenizer_config.json")
        for key in ("additional_special_tokens", "extra_special_tokens")
    ]
    languages = [str(each) for each in max(found, key=len) if str(each).startswith("__")]
    if not languages:
        raise ValueError("special_tokens_map.json names no languages")
    return Vocabulary([*_listed(directory / "vocab.json"), *languages], languages)


def _deberta(directory: Path, model: SentencePieceModel) -> Vocabulary:
    """Return the pieces in their order, which begins with special tokens, and the mask."""
    added = [] if DEBERTA["mask_token"] in model.names else [DEBERTA["mask_token"]]
    missing = set(DEBERTA.values()) - {*model.names, *added}
    if missing:
        raise ValueError(f"spm.model has no {enumerate_names(sorted(missing))}")
    return Vocabulary([*model.names, *added])


def _fairseq(codes: Sequence[str]) -> Callable[[Path, SentencePieceModel], Vocabulary]:
    def read(directory: Path, model: SentencePieceModel) -> Vocabulary:
        pieces = [*FAIRSEQ, *model.pieces]
        added = _added_tokens(directory, len(pieces)) or [*codes, MASK]
        return Vocabulary([*pieces, *added], added)

    return read


def _added_tokens(directory: Path, first: int) -> list[str]:
    """Return the tokens that the settings of a tokenizer add after an id, in order."""
    settings = _document(directory / "tokenizer_config.json").get("added_tokens_decoder") or {}
    added = {int(number): str(token["content"]) for number, token in settings.items()}
    return [added[number] for number in sorted(added) if number >= first]


FAMILIES = {
    "MarianTokenizer": Family("source.spm", _marian, "$A </s>"),
    "M2M100Tokenizer": Family(
        "sentencepiece.bpe.model", _m2m100, "{source} $A </s>", "en", "__{}__"
    ),
    "NllbTokenizer": Family(
        "sentencepiece.bpe.model", _fairseq(NLLB_CODES), "{source} $A </s>", "eng_Latn"
    ),
    "MBartTokenizer": Family(
        "sentencepiece.bpe.model", _fairseq(MBART_CODES), "$A </s> {source}", "en_XX"
    ),
    "MBart50Tokenizer": Family(
        "sentencepiece.bpe.model", _fairseq(MBART50_CODES), "{source} $A </s>", "en_XX"
    ),
    "DebertaV2Tokenizer": Family(
        "spm.model", _deberta, "[CLS] $A [SEP]", named=DEBERTA, without_bytes=True
    ),
}


# Of tokenizers that read pairs of texts.
PAIRS = {"[CLS] $A [SEP]": "[CLS] $A [SEP] $B:1 [SEP]:1"}


def _add_template(backend: Tokenizer, template: str) -> None:
    around = set(template.split()) - {"$A"}
    ids = [(token, backend.token_to_id(token)) for token in around]
    missing = [token for token, number in ids if number is None]
    if missing:
        raise ValueError(f"the vocabulary has no {enumerate_names(missing)}")
    pair = PAIRS.get(template) or template.replace("$A", "$A $B")
    backend.post_processor = TemplateProcessing(single=template, pair=pair, special_tokens=ids)


def _listed(path: Path) -> list[str]:
    """Return the tokens of a `vocab.json` in the order of their ids."""
    ids = _document(path)
    tokens = sorted(ids, key=lambda token: int(ids[token]))
    if not tokens or [ids[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError(f"the ids in {path.name} are not 0, 1, 2 and so on")
    if UNKNOWN not in ids or END not in ids:
        raise ValueError(f"{path.name} has no {UNKNOWN} or no {END}")
    return tokens


def _document(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not a JSON object")  # noqa: TRY004 - a damaged file
    return found
