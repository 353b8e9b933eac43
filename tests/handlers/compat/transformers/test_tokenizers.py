from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from handlers.compat.transformers.tokenizers import (
    MBART50_CODES,
    MBART_CODES,
    NLLB_CODES,
    LimitedTokenizer,
    bytes_of_letters,
)


def test_ids_that_the_model_does_not_have_are_unknown() -> None:
    backend = Tokenizer(WordLevel({"<unk>": 0, "a": 1, "b": 2, "c": 3}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = LimitedTokenizer(tokenizer_object=backend, unk_token="<unk>")
    tokenizer.ids = 3
    assert tokenizer("a b c d")["input_ids"] == [1, 2, 0, 0]
    assert tokenizer(["c", "a c"])["input_ids"] == [[0], [1, 0]]


def test_each_byte_has_a_letter() -> None:
    letters = bytes_of_letters()
    assert sorted(letters.values()) == list(range(256))
    assert (letters["a"], letters["Ġ"]) == (ord("a"), ord(" "))


def test_languages_are_in_the_order_of_their_ids() -> None:
    assert MBART_CODES[:2] == ["ar_AR", "cs_CZ"]
    assert (len(MBART_CODES), len(MBART50_CODES), len(NLLB_CODES)) == (25, 52, 202)
