"""Translation: a text to the same in another language.

    {"inputs": "Nina sings.", "parameters": {"src_lang": "en_XX", "tgt_lang": "de_DE"}}
    -> [{"translation_text": "Nina singt."}]

Models of many languages (mBART, NLLB, M2M100) need both codes. For a checkpoint with settings such
as `translation_en_to_de` in its config.json (T5) they choose among these. Others have one pair of
languages, and take no codes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NotRequired

from pydantic import Field
from transformers import PreTrainedTokenizerBase
from typing_extensions import TypedDict

from ..batching.tokenization import Window
from ..config.messages import enumerate_names, quote
from ..errors import Unprocessable
from ..types.model_info import Generation, ModelOutputs, Rows, TaskDescription, Wire
from ..types.request import Request
from .bases.generated_text import Details
from .text2text_generation import Preset, TextInput, TextToTextParameters, TextToTextTask

PAIR = re.compile("translation_(.+)_to_(.+)")
CODES = ("src_lang", "tgt_lang")
Codes = tuple[str | None, str | None]
Code = Annotated[str, Field(min_length=1, max_length=20)]
# mBART's `en_XX`, NLLB's `eng_Latn`, and M2M100's `__en__`, whose code is `en`.
TOKEN = re.compile(r"__(?P<short>[a-z]{2,3})__|(?P<long>[a-z]{2,3}_[A-Z][A-Za-z]{1,3})")
EXAMPLES = ("en", "fr", "en_XX", "fr_XX", "eng_Latn", "fra_Latn")
SHOWN = 6


class TranslationParameters(TextToTextParameters):
    """Parameters of one translation."""

    src_lang: Code | None = None
    """Code of the text's language, for models of several."""
    tgt_lang: Code | None = None
    """Code of the language to translate to, for models of several."""


class Translation(TypedDict):
    """One translation of a text."""

    translation_text: str
    details: NotRequired[Details]


class Task(TextToTextTask):
    """Translations; answers as the translation pipeline of transformers 4 does."""

    pipeline = "translation"
    parameters = TranslationParameters
    description = TaskDescription(
        Wire(
            inputs=str,
            results=Translation | list[Translation],
            example={
                "inputs": "Nina sings in the old bar near the river.",
                "parameters": {"max_new_tokens": 8},
            },
            result_columns=("translation_text",),
        ),
        outputs=ModelOutputs(("logits",), per_token=("logits",)),
        rows=Rows(supports_packing=False),
        generation=Generation(texts=True, is_encoder_decoder=True),
    )

    def parse(self, request: Request) -> TextInput:
        item = super().parse(request)
        if not self.languages.tokens:
            return item
        source, target = self._codes(item.parameters.model_dump(include=set(CODES)))
        return replace(
            item,
            source=self.languages.token(CODES[0], source),
            target=self.languages.token(CODES[1], target),
        )

    def defaults_for(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        # A value of a wrong type is reported before an unknown pair of languages.
        self.parameters.of_request(self.defaults, given)
        return super().defaults_for(given)

    def preset_for(self, given: Mapping[str, Any]) -> Preset:
        """Return the checkpoint's settings for a pair of languages.

        Raises:
            Unprocessable: it translates between others.
        """
        codes = self._codes(given)
        if self.languages.tokens:
            return replace(self.preset, prefix="")
        if codes == (None, None):
            return self.preset
        if codes in self._pairs:
            return self._pairs[codes]
        if not self._pairs:
            raise Unprocessable(
                "This model translates one language to another one, and takes no codes"
                "; leave src_lang and tgt_lang out."
            )
        known = [f"{source} to {target}" for source, target in self._pairs]
        raise Unprocessable(
            f"src_lang is {quote(codes[0])} and tgt_lang {quote(codes[1])}"
            f"; this model translates {some_of(known)}."
        )

    @cached_property
    def languages(self) -> Languages:
        """The languages that the tokenizer has tokens for."""
        return Languages.of_tokenizer(self.tokenizer)

    @cached_property
    def _pairs(self) -> Mapping[Codes, Preset]:
        """The checkpoint's settings for each pair of languages."""
        named = getattr(self.checkpoint.config, "task_specific_params", None) or {}
        matches = filter(None, map(PAIR.fullmatch, named))
        return {(match[1], match[2]): self.preset_of(match[0]) for match in matches}

    def _codes(self, given: Mapping[str, Any]) -> Codes:
        source, target = (given.get(name, self.of_yaml.get(name)) for name in CODES)
        return source, target

    def token_ids(self, item: TextInput, row: Window) -> list[int]:
        ids = super().token_ids(item, row)
        return ids if item.source is None else self.languages.with_source(ids, item.source)


@dataclass(frozen=True)
class Languages:
    """The languages of a model."""

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
