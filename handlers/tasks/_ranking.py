"""What modes that rank texts by a query have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NotRequired

import numpy as np
from pydantic import AliasChoices, Field, PositiveInt
from typing_extensions import TypedDict

from handlers.types.parameters import ANY, Parameters, PipelineNames
from handlers.types.text_checks import check_list, check_text

LISTS = ("texts", "documents")


class RankingParameters(Parameters):
    """Parameters of a ranking."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY}
    )

    top_n: PositiveInt | None = Field(default=None, validation_alias=AliasChoices("top_n", "top_k"))
    """Number of texts, best first. Without it, all of them. Alias: `top_k`."""
    return_documents: bool = Field(
        default=False, validation_alias=AliasChoices("return_documents", "return_text")
    )
    """Returns each text beside its score. Alias: `return_text`."""


class Document(TypedDict):
    """A text in an object."""

    text: str


class QueryTexts(TypedDict):
    """A query, and the texts to rank; their list is also called `documents`."""

    query: str
    texts: NotRequired[str | list[str | Document]]
    documents: NotRequired[str | list[str | Document]]


class RankedText(TypedDict):
    """A text by its number in the request, and how well it fits the query."""

    index: int
    score: float
    text: NotRequired[str]


def read_texts(texts: Any, name: str, max_rows: int, max_characters: int) -> list[str]:
    """Return the texts to rank, each a text or an object with one.

    Args:
        texts: the value in the request.
        name: its name in an error.
        max_rows: how many texts there may be.
        max_characters: how long each may be.

    Raises:
        BadRequest: it is no list of texts.
        RequestTooLarge: there are too many, or one is too long.
    """
    listed = check_list([texts] if isinstance(texts, str) else texts, name, max_rows)
    return [
        check_text(_text_of(text), f"{name}[{number}]", max_characters)
        for number, text in enumerate(listed)
    ]


def ranked(
    scores: Sequence[float], texts: Sequence[str], parameters: RankingParameters
) -> list[RankedText]:
    """Return the best texts, best first; of equal scores, the first text."""
    best = np.argsort(-np.asarray(scores), kind="stable")[: parameters.top_n].tolist()
    found = [RankedText(index=number, score=scores[number]) for number in best]
    if parameters.return_documents:
        for each in found:
            each["text"] = texts[each["index"]]
    return found


def _text_of(item: Any) -> Any:
    """Return the text of `{"text": …}`; other items as they are."""
    return item["text"] if isinstance(item, dict) and item.keys() == {"text"} else item
