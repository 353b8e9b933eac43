"""Prompts: texts by name that precede a text, and the kinds of texts that they are for.

A request names a prompt, or says what its text is. `query` and `document` choose the prompt that
`encode_query` and `encode_document` of sentence-transformers choose: `query`, and the first of
`document`, `passage` and `corpus`. `search_query` and `search_document` are Cohere's words for
them, `retrieval.query` and `retrieval.passage` Jina's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..config.messages import enumerate_names, quote
from ..errors import BadRequest

QUERY = ("query", "retrieval.query")
DOCUMENT = ("document", "passage", "corpus", "retrieval.passage")
# The names that checkpoints give the prompt of each kind of texts, by the words for the kind.
PROMPTS_OF_KINDS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("query", "search_query", "retrieval.query"), QUERY),
    **dict.fromkeys(("document", "passage", "search_document", "retrieval.passage"), DOCUMENT),
    "classification": ("classification", "Classification"),
    "clustering": ("clustering", "Clustering"),
    "separation": ("separation",),
    "text-matching": ("text-matching",),
}


@dataclass(frozen=True)
class Prompts:
    """The prompts of a model.

    Attributes:
        texts: each prompt by its name.
        default: the name of the prompt of a request that chooses none; None for no prompt.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None

    def choose(self, prompt: str | None, name: str | None, kind: str | None) -> str:
        """Return the prompt of a request: its text, or the prompt that it names.

        The first argument that is given decides; an empty name or kind is none.

        Args:
            prompt: the text of a prompt, which is taken as it is.
            name: the name of a prompt.
            kind: what the text is: a word of `PROMPTS_OF_KINDS`, or the name of a prompt.

        Raises:
            BadRequest: the name or the kind is unknown.
        """
        if prompt is not None:
            return prompt
        if kind and not name:
            return self._of_kind(kind)
        chosen = name or self.default
        return self._named(chosen) if chosen else ""

    def _named(self, name: str) -> str:
        if name not in self.texts:
            known = f"; send one of {enumerate_names(sorted(self.texts))}" if self.texts else ""
            raise BadRequest(
                f"parameters: prompt_name is {quote(name)}, and this model has no prompt of that"
                f" name{known}."
            )
        return self.texts[name]

    def _of_kind(self, kind: str) -> str:
        """Return the prompt of a kind of texts, which is empty where the model has none."""
        if kind in self.texts:
            return self.texts[kind]
        if kind not in PROMPTS_OF_KINDS:
            kinds = [each for each in PROMPTS_OF_KINDS if "." not in each and "search" not in each]
            named = f", or a prompt: {enumerate_names(sorted(self.texts))}" if self.texts else ""
            raise BadRequest(
                f"parameters: input_type is {quote(kind)}; send one of"
                f" {enumerate_names(kinds, limit=len(kinds))}{named}."
            )
        return next((self.texts[each] for each in PROMPTS_OF_KINDS[kind] if each in self.texts), "")
