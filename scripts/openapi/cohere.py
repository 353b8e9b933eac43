"""The responses of Cohere's `embed` and `rerank`.

https://docs.cohere.com/reference/embed and /rerank
"""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from scripts.openapi.openai import InputUsage

Vector = list[float]


class EmbeddingsByType(TypedDict, total=False):
    """The vectors of all texts, by type."""

    float: list[Vector]
    base64: list[str]
    int8: list[list[int]]
    uint8: list[list[int]]
    binary: list[list[int]]
    ubinary: list[list[int]]


class ApiVersion(TypedDict):
    """The number in the path's version."""

    version: str


class InputTokens(TypedDict):
    """How many tokens the model read."""

    input_tokens: int


class CohereMeta(TypedDict):
    """What both answers tell about a call."""

    api_version: ApiVersion
    billed_units: InputTokens
    tokens: InputTokens


class CohereEmbeddings(TypedDict):
    """The answer of `embed`: vectors by type, or of `v1` without types a list of them."""

    id: str
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    embeddings: list[list[float]] | EmbeddingsByType
    texts: list[str]
    meta: CohereMeta


class RankedObject(TypedDict):
    """A document of an answer."""

    text: str


class RankedDocument(TypedDict):
    """A document by its number in the request; infinity's has a text in place of an object."""

    index: int
    relevance_score: float
    document: NotRequired[RankedObject | str]


class CohereRanking(TypedDict):
    """The answer of `rerank`, best first, with the keys of Jina's and infinity's as well."""

    id: str
    object: Literal["rerank"]
    model: str
    results: list[RankedDocument]
    meta: CohereMeta
    usage: InputUsage


class CohereError(TypedDict):
    """An error in Cohere's shape."""

    id: str
    message: str
    detail: str
