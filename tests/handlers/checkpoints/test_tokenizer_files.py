"""Tokenizers of SentencePiece files: models that are served with them, and files that are not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.checkpoints.tokenizer_files import SentencePieceModel
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from tests import tiny
from tests.reference.test_sentencepiece import PARTS, write
from tests.sentences import Sentence, refused
from tests.serving import Served, differences

MODE = "translation"
FEW = {"max_new_tokens": 5, "num_beams": 1, "details": True}
TEXTS = ("Nina sings in the old bar.", "☃", ">>de<< Ada lives in Paris")


def part(name: str, kind: str = "unigram") -> dict[str, Any]:
    """Return the tokenizer files of a class of tokenizers, and tokens of texts."""
    return next(each for each in PARTS if (each["class"], each["kind"]) == (name, kind))


def checkpoint(folder: Path, name: str, family: str, **config: Any) -> Path:
    """Write a tiny model with the SentencePiece files of a class of tokenizers."""
    tiny.write(folder, MODE, family=family, vocab_size=500, **config)
    for path in folder.glob("*token*.json"):
        path.unlink()
    return write(folder, part(name))


def test_a_marian_model_is_served_with_its_sentencepiece_files(tmp_path: Path) -> None:
    model = Served(checkpoint(tmp_path / "model", "MarianTokenizer", "Marian"), MODE)
    bodies = [{"inputs": text, "parameters": FEW} for text in TEXTS]
    alone = [model.post(body)[0] for body in bodies]
    assert [status for status, _ in alone] == [200] * 3
    assert not differences(model.post(*bodies), alone, 1e-4)


def test_the_languages_of_m2m100_are_those_of_its_files(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", "M2M100Tokenizer", "M2M100")
    model = Served(folder, MODE)
    codes = {"src_lang": "de", "tgt_lang": "fr"}
    (answer,) = model.ask("Nina singt", **FEW, **codes)
    languages = part("M2M100Tokenizer")["documents"]["special_tokens_map.json"]
    place = languages["additional_special_tokens"].index("__fr__")
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    assert answer["details"]["tokens"][0]["id"] == len(vocabulary) + place
    status, message = model.refuse("Nina singt", src_lang="de", tgt_lang="tlh")
    assert status == 422
    assert "this model's languages are en, fr, af" in message


def change(name: str, edit: Callable[[Any], Any]) -> Callable[[Path], None]:
    def edited(folder: Path) -> None:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(edit(document)), encoding="utf-8")

    return edited


@pytest.mark.parametrize(
    ("damage", "facts"),
    [
        (lambda folder: (folder / "source.spm").write_bytes(b"\x0a\xff"), []),
        (lambda folder: (folder / "source.spm").write_bytes(b""), []),
        (change("vocab.json", lambda ids: {**ids, "twice": 1}), ["0", "1", "2"]),
        (change("vocab.json", lambda ids: [*ids]), ["JSON"]),
        (change("vocab.json", lambda ids: {"a": 0}), ["<unk>"]),
        (
            change("tokenizer_config.json", lambda own: {**own, "separate_vocabs": True}),
            ["vocabularies"],
        ),
    ],
)
def test_damaged_files_stop_the_load_with_the_reason_and_the_way_to_convert(
    tmp_path: Path, damage: Callable[[Path], Any], facts: list[str]
) -> None:
    folder = checkpoint(tmp_path / "model", "MarianTokenizer", "Marian")
    damage(folder)
    with pytest.raises(WrongCheckpoint) as error:
        _ = Checkpoint.read(folder, HandlerSection(mode=MODE)).tokenizer
    assert str(error.value) == Sentence(*facts)
    assert 'AutoTokenizer.from_pretrained("FOLDER").save_pretrained' in str(error.value)


def test_sentencepiece_files_of_another_family_are_refused_with_the_way_to_convert(
    tmp_path: Path,
) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    (folder / "tokenizer.json").unlink()
    own = change("tokenizer_config.json", lambda _: {"tokenizer_class": "T5Tokenizer"})
    own(folder)
    files = write(tmp_path / "files", part("NllbTokenizer"))
    (files / "sentencepiece.bpe.model").rename(folder / "spiece.model")
    with refused(WrongCheckpoint, "tokenizer.json"):
        _ = Checkpoint.read(folder, HandlerSection(mode=MODE)).tokenizer


def test_any_bytes_are_a_model_or_a_value_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "files", part("NllbTokenizer"))
    whole = (folder / "sentencepiece.bpe.model").read_bytes()
    drawn = random.Random(0)
    path = tmp_path / "changed.model"
    for _ in range(300):
        changed = bytearray(whole[: drawn.randrange(len(whole))])
        for _ in range(drawn.randrange(4)):
            changed[drawn.randrange(len(changed) or 1) : 1] = drawn.randbytes(2)
        path.write_bytes(bytes(changed))
        try:
            SentencePieceModel.read(path)
        except ValueError as error:
            assert str(error)
