"""The language codes of a multilingual tokenizer, such as `en_XX`, `eng_Latn` or `en`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from handlers.config.quoting import enumerate_names, quote
from handlers.errors import Unprocessable

# mBART's `en_XX`, NLLB's `eng_Latn`, and M2M100's `__en__`, whose code is `en`.
TOKEN = re.compile(r"__(?P<short>[a-z]{2,3})__|(?P<long>[a-z]{2,3}_[A-Z][A-Za-z]{1,3})")
EXAMPLES = ("en", "fr", "en_XX", "fr_XX", "eng_Latn", "fra_Latn")
SHOWN = 6


@dataclass(frozen=True)
class Languages:
    """The languages of a model.

    Attributes:
        tokens: the token of each language, by its code.
    """

    tokens: Mapping[str, int]

    @classmethod
    def of_tokenizer(cls, tokenizer: PreTrainedTokenizerBase) -> Languages:
        """Return the languages that a tokenizer has special tokens for."""
        matches = (
            (TOKEN.fullmatch(str(token)), number)
            for number, token in tokenizer.added_tokens_decoder.items()
        )
        return cls({(m["short"] or m["long"]): number for m, number in matches if m})

    def token(self, name: str, code: str | None) -> int:
        """Return the token of a language.

        Args:
            name: the parameter that has the code, for errors.
            code: the code; None where a request has none.

        Raises:
            Unprocessable: there is no such language.
        """
        if code is not None and code in self.tokens:
            return self.tokens[code]
        found = "is missing" if code is None else f"is {quote(code)}"
        raise Unprocessable(f"{name} {found}; this model's languages are {some_of(self.tokens)}.")

    def with_source(self, ids: Sequence[int], source: int) -> list[int]:
        """Return the tokens of a text, with the token of its language in place of another's."""
        known = set(self.tokens.values())
        return [source if token in known else token for token in ids]


def some_of(codes: Collection[str]) -> str:
    """Return a few codes in words, the well-known ones first."""
    chosen = [*(code for code in EXAMPLES if code in codes), *sorted(codes)]
    shown = list(dict.fromkeys(chosen))[:SHOWN]
    more = len(codes) - len(shown)
    return f"{', '.join(shown)} and {more} more" if more > 0 else enumerate_names(shown)
