"""Private parts of transformers' tokenizers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART_CODES
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART50_CODES
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_CODES

__all__ = ["MBART50_CODES", "MBART_CODES", "NLLB_CODES", "LimitedTokenizer", "bytes_of_letters"]


class LimitedTokenizer(PreTrainedTokenizerFast):
    """A fast tokenizer whose ids after the last one of the model are the unknown token.

    Breaks when fast tokenizers do not convert each encoding by `_convert_encoding`.

    Attributes:
        ids: how many ids the model has.
    """

    ids: int

    def _convert_encoding(self, *args: Any, **options: Any) -> tuple[dict[str, Any], list[Any]]:
        values, encodings = super()._convert_encoding(*args, **options)
        unknown = int(self.unk_token_id)
        values["input_ids"] = [
            [token if token < self.ids else unknown for token in row] for row in values["input_ids"]
        ]
        return values, encodings


@cache
def bytes_of_letters() -> Mapping[str, int]:
    """Return the byte that each letter of a byte-level token is for.

    Breaks when `bytes_to_unicode` is moved; GPT-2's table itself does not change.
    """
    return {letter: byte for byte, letter in bytes_to_unicode().items()}
