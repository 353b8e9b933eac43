"""Translation: a text to the same in another language.

    {"inputs": "Nina sings.", "parameters": {"src_lang": "en_XX", "tgt_lang": "de_DE"}}
    -> [{"translation_text": "Nina singt."}]

Models of many languages (mBART, NLLB, M2M100) need both codes. For a checkpoint with settings such
as `translation_en_to_de` in its config.json (T5) they choose among these. Others have one pair of
languages, and take no codes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from handlers.batching.tokenization import Window
from handlers.config.quoting import quote
from handlers.errors import Unprocessable
from handlers.tasks._languages import Languages, some_of
from handlers.tasks.text2text_generation import (
    Preset,
    TextQuery,
    TextToTextParameters,
    TextToTextTask,
)
from handlers.tasks.text_generation import Details
from handlers.types.request import Request

PAIR = re.compile("translation_(.+)_to_(.+)")
CODES = ("src_lang", "tgt_lang")
Codes = tuple[str | None, str | None]
Code = Annotated[str, Field(min_length=1, max_length=20)]


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
    results = Translation | list[Translation]
    sample: ClassVar[Mapping[str, Any]] = {
        "inputs": "Nina sings in the old bar near the river.",
        "parameters": {"max_new_tokens": 8},
    }
    result_columns = ("translation_text",)

    def parse(self, request: Request) -> TextQuery:
        query = super().parse(request)
        if not self.languages.tokens:
            return query
        source, target = self._codes(query.parameters.model_dump(include=set(CODES)))
        return replace(
            query,
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

    def token_ids(self, query: TextQuery, row: Window) -> list[int]:
        ids = super().token_ids(query, row)
        return ids if query.source is None else self.languages.with_source(ids, query.source)
