"""Cohere's `embed` and `rerank` below the model's path, and the `rerank` of Jina and infinity.

    v2/embed   {"texts": ["a text"], "input_type": "search_query", "embedding_types": ["float"]}
               -> {"embeddings": {"float": [[0.1, …]]}, "texts": […], "meta": {…}, "id": "…"}
               {"images": ["data:image/png;base64,…"], "input_type": "image"}, for a model of images
    v1/embed   the same; without embedding_types, `embeddings` is a list of vectors
    v2/rerank, v1/rerank, rerank
               {"query": "…", "documents": ["…", {"text": "…"}], "top_n": 3}
               -> {"results": [{"index": 1, "relevance_score": 0.9}, …], "usage": {…}, "meta": {…}}

A client's base URL is `http://host:8080/predictions/<model>/<version>`, and ends with `/v1` for
Jina's. `rerank` with `texts` in place of `documents` is text-embeddings-inference's. A response is
complete or an error: there are no errors in its lists.

https://docs.cohere.com/reference/embed and /rerank, https://jina.ai/reranker
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt, SkipValidation
from typing_extensions import TypedDict

from ..errors import BadRequest, RequestError, TextTooLong, Unprocessable
from ..http.request import HttpRequest
from ..http.response import HttpResponse, encode_json
from ..types.embeddings import PROMPT_KEYS, in_base64, quantized
from ..types.model_info import ModelInfo
from ..types.parameters import WholeNumbers, json_type, one_value, parse_body
from ..types.request import Request, TokenCount
from .base import (
    NO_BODY,
    BaseProtocol,
    KeyTable,
    ParsedRequest,
    Route,
    first_error,
    ignored,
    refused,
    tokens_read,
    with_names,
)
from .items import ContentPart, content_input, image_input
from .openai.endpoint import adapter_parameters, served_name
from .openai.types import InputUsage
from .truncation import (
    PromptTokens,
    Truncation,
    instruction_parameters,
    truncation_of,
    truncation_parameters,
)

EMBED, RERANK = "embed", "rerank"
# The keys of the inputs of `embed`.
LISTS = ("texts", "images", "inputs")
EmbeddingType = Literal["float", "base64", "int8", "uint8", "binary", "ubinary"]
Vector = list[float]
# For documentation: items are checked after they are counted.
NOT_EMPTY = Field(json_schema_extra={"minItems": 1})
# The embedding task's parameters of the vectors that become embeddings of all types.
FLOATS: Mapping[str, Any] = {"precision": "float32", "encoding_format": "float"}


class Body(WholeNumbers):
    """Base of the bodies; keys that are no fields are left to the table of keys."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, protected_namespaces=())

    model: str | None = None


class Content(TypedDict):
    """An input: texts, or an image."""

    content: Annotated[list[ContentPart], Field(min_length=1)]


class EmbedBody(Body):
    """The body of `embed`."""

    texts: Annotated[list[SkipValidation[str]], NOT_EMPTY] | None = None
    images: Annotated[list[SkipValidation[str]], NOT_EMPTY] | None = None
    inputs: Annotated[list[SkipValidation[Content]], NOT_EMPTY] | None = None
    input_type: str | None = None
    embedding_types: Annotated[list[EmbeddingType], Field(min_length=1)] | None = None
    truncate: Truncation | None = None
    output_dimension: PositiveInt | None = None
    # Extensions of Jina and sentence-transformers.
    task: str | None = None
    prompt_name: str | None = None
    prompt: str | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the embedding task, except the types of numbers."""
        dimensions = self.output_dimension
        return {
            **self.model_dump(include={*PROMPT_KEYS}, exclude_none=True),
            **({} if dimensions is None else {"dimensions": dimensions}),
            **truncation_of(self.truncate),
        }


class DocumentObject(TypedDict):
    """A document as an object: a text, or for models of pages an image."""

    text: NotRequired[str]
    image: NotRequired[str]


class RerankBody(Body):
    """The body of `rerank`."""

    query: SkipValidation[str]
    documents: Annotated[list[SkipValidation[str | DocumentObject]], NOT_EMPTY]
    top_n: PositiveInt | None = None
    return_documents: bool | None = None
    raw_scores: bool | None = None
    # Extensions of Voyage AI.
    top_k: PositiveInt | None = None
    truncation: bool | None = None
    # Extensions of vLLM, and `instruction` of llama.cpp as well.
    instruction: str | None = None
    use_activation: bool | None = None
    truncate_prompt_tokens: PromptTokens | None = None

    def parameters(self, model: ModelInfo) -> dict[str, Any]:
        """Return the parameters of the ranking task.

        Raises:
            BadRequest: two names of one setting have different values.
        """
        found = {
            "top_n": one_value({"top_n": self.top_n, "top_k": self.top_k}),
            "return_documents": self.return_documents,
            "raw_scores": self._raw_scores(),
        }
        given = {name: value for name, value in found.items() if value is not None}
        truncation = _truncated(self.truncation, model)
        given |= truncation
        given |= instruction_parameters(self.instruction, model)
        tokens = self.truncate_prompt_tokens
        return {**given, **truncation_parameters(tokens, model, truncation)}

    @property
    def is_of_voyage(self) -> bool:
        """Whether the body is Voyage AI's, whose clients send `truncation` with each."""
        return self.top_k is not None or self.truncation is not None

    def _raw_scores(self) -> bool | None:
        """Return whether scores are logits; None for a body that does not say it."""
        raw, activates = self.raw_scores, self.use_activation
        if raw is None:
            return None if activates is None else not activates
        if raw == activates:
            raise BadRequest(
                f"raw_scores and use_activation are both {json.dumps(raw)}, and one is the opposite"
                " of the other; send one of them."
            )
        return raw


def _truncated(wanted: bool | None, model: ModelInfo) -> Mapping[str, Any]:
    """Return the parameter that cuts texts that are too long, or refuses them.

    Raises:
        Unprocessable: the mode does only the other.
    """
    if wanted is None or "truncate" in model.parameters:
        return truncation_of(wanted)
    if wanted != model.limits.truncation:
        raise Unprocessable(
            "truncation cannot be done by this server for this model; leave it out."
        )
    return {}


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
    """What both responses tell about a call."""

    api_version: ApiVersion
    billed_units: InputTokens
    tokens: InputTokens


class CohereEmbeddings(TypedDict):
    """The response of `embed`: vectors by type, or of `v1` without types a list of them."""

    id: str
    meta: CohereMeta
    texts: list[str]
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    embeddings: list[Vector] | EmbeddingsByType


class RankedDocument(TypedDict):
    """A document by its number in the request; infinity's has a text in place of an object."""

    index: int
    relevance_score: float
    document: NotRequired[DocumentObject | str]


class CohereRanking(TypedDict):
    """The response of `rerank`, best first, with the keys of Jina's and infinity's as well.

    Clients of Voyage AI read `data`, which their answers have in addition to `results`.
    """

    id: str
    meta: CohereMeta
    object: Literal["rerank"]
    model: str
    results: list[RankedDocument]
    data: NotRequired[list[RankedDocument]]
    usage: InputUsage


class CohereError(TypedDict):
    """An error in Cohere's shape, with the key that Jina's clients read as well."""

    id: str
    message: str
    detail: str


EMBED_ROUTE = Route(
    "v2/embed",
    name="cohereEmbedV2",
    server="Cohere",
    summary="Return a vector of each type for each text.",
    response=CohereEmbeddings,
    error=CohereError,
    abilities=("embed",),
    body=EmbedBody,
    keys=KeyTable.of(
        EmbedBody,
        ignored("priority", "request_id", "user"),
        refused(
            max_tokens=[],
            chat_template=[],
            chat_template_kwargs=[],
            mm_processor_kwargs=[],
        ),
    ),
    examples=lambda sample: {
        "one": {
            "texts": [sample["inputs"]] * 2,
            "input_type": "search_document",
            "truncate": "END",
        },
        "types": {
            "texts": [sample["inputs"]] * 2,
            "embedding_types": ["float", "int8", "ubinary", "base64"],
            "output_dimension": 8,
        },
        "inputs": {"inputs": [{"content": [{"type": "text", "text": sample["inputs"]}]}]},
    },
)
RERANK_ROUTE = Route(
    "v2/rerank",
    name="cohereRerankV2",
    server="Cohere",
    summary="Return documents by how well they fit a query, best first.",
    response=CohereRanking,
    error=CohereError,
    abilities=("rerank",),
    body=RerankBody,
    # Keys of Cohere, Jina, infinity, and vLLM's `rerank`.
    keys=KeyTable.of(
        RerankBody,
        ignored("priority", "request_id", "session_id", "user", "cache_salt", "padding"),
        refused(
            # Cohere's defaults, which haystack's client sends.
            max_tokens_per_doc=4096,
            max_chunks_per_doc=10,
            max_tokens_per_query=[],
            max_doc_length=[],
            max_query_length=[],
            rank_fields=[["text"]],
            relevant_spans=[],
            return_embeddings=False,
            add_special_tokens=True,
            truncation_side="right",
            softmax=True,
            activation=True,
            chat_template=[],
            chat_template_kwargs=[],
            mm_processor_kwargs=[],
        ),
    ),
    examples=lambda sample: _documents_to_rank(*sample["inputs"].values()),
)


class Protocol(BaseProtocol):
    """Embeddings and rankings; without adapters, `model` may be any name."""

    body_keys = NO_BODY
    routes = (
        EMBED_ROUTE,
        replace(EMBED_ROUTE, path="v1/embed", name="cohereEmbedV1"),
        RERANK_ROUTE,
        replace(RERANK_ROUTE, path="v1/rerank", name="cohereRerankV1"),
        replace(RERANK_ROUTE, path=RERANK, name="rerank", server="Infinity"),
    )

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        self._paths = {
            f"{version}/{name}": parse
            for version in ("v1", "v2")
            for name, parse in ((EMBED, self._parse_embed), (RERANK, self._parse_rerank))
        }

    def recognises(self, http_request: HttpRequest) -> bool:
        if http_request.path == RERANK:
            content = http_request.content
            return isinstance(content, dict) and "documents" in content
        return http_request.path in self._paths

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        return self._paths.get(http_request.path, self._parse_rerank)(http_request)

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        is_embed, content = parsed.http_request.path.endswith(EMBED), parsed.http_request.content
        name = next((each for each in LISTS if content.get(each)), "texts") if is_embed else None
        if error := first_error(outcomes, name):
            error = with_names(error, {"inputs": name or "texts"})
            return self.error_response(parsed.http_request, error)
        tokens = tokens_read(parsed.requests)
        return HttpResponse(encode_json(parsed.context(tokens, outcomes)))

    def error_response(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        if isinstance(error, TextTooLong):
            # Cohere's status and words, which clients look for.
            error = BadRequest(f"too many tokens: {error}")
        return super().error_response(http_request, error)

    def error_body(self, error: RequestError) -> CohereError:
        return {"id": str(uuid.uuid4()), "message": str(error), "detail": str(error)}

    def _parse_embed(self, http_request: HttpRequest) -> ParsedRequest:
        http_request = EMBED_ROUTE.check(http_request, self.model)
        body = parse_body(EmbedBody, http_request.content)
        inputs = self._inputs(body)
        texts = [each for each in inputs if isinstance(each, str)]
        version = http_request.path.partition("/")[0].removeprefix("v")
        default: list[EmbeddingType] = ["float"] if version == "2" else []
        types = list(dict.fromkeys(body.embedding_types or default))
        write = partial(_embeddings, version, texts, types)
        adapter = adapter_parameters(self.model, body.model)
        parameters = {**body.parameters(), **FLOATS, **adapter}
        requests = [
            Request(each, parameters, is_batch_item=True, token_count=TokenCount())
            for each in inputs
        ]
        return ParsedRequest(http_request, requests, write)

    def _parse_rerank(self, http_request: HttpRequest) -> ParsedRequest:
        http_request = RERANK_ROUTE.check(http_request, self.model)
        body = parse_body(RerankBody, http_request.content)
        self.check_count(len(body.documents), "documents")
        documents = [self._document(document) for document in body.documents]
        inputs = {"query": body.query, "documents": documents}
        version = http_request.path.rpartition("/")[0].removeprefix("v")
        # Clients of Jina and vLLM read the documents without asking for them; Cohere's need not.
        echoes = version == "1" and not self.model.task.wire.reads_media
        parameters = {
            **({"return_documents": True} if echoes else {}),
            **body.parameters(self.model),
            **adapter_parameters(self.model, body.model),
        }
        request = Request(inputs, parameters, token_count=TokenCount())
        # Without a version it is infinity's, whose documents are texts.
        name = served_name(self.model, body.model)
        write = partial(
            _ranking, name, version or "1", nests=bool(version), repeats=body.is_of_voyage
        )
        return ParsedRequest(http_request, [request], write)

    def _document(self, document: Any) -> Any:
        """Return the text or the image of a document, which may be an object with other keys."""
        if isinstance(document, dict) and "image" in document and "text" not in document:
            return image_input(document["image"], "documents", self.model)
        return document.get("text") if isinstance(document, dict) else document

    def _inputs(self, body: EmbedBody) -> list[Any]:
        """Return the texts and images of a body: `texts`, `images` or `inputs`."""
        lists = {"texts": body.texts, "images": body.images, "inputs": body.inputs}
        given: dict[str, list[Any]] = {
            name: each for name, each in lists.items() if each is not None
        }
        if len(given) != 1:
            raise BadRequest("The body must have one of texts, images and inputs; send texts.")
        ((name, items),) = given.items()
        self.check_count(len(items), name)
        if name == "images":
            return [image_input(each, name, self.model) for each in items]
        return items if name == "texts" else [self._input(each) for each in items]

    def _input(self, item: Any) -> Any:
        """Return the text or the image of an item of `inputs`, whose content is a list of parts."""
        parts = item.get("content") if isinstance(item, dict) else None
        if not isinstance(parts, list):
            raise BadRequest(
                'inputs must be a list of {"content": [{"type": "text", "text": …}]}'
                f", and has {json_type(item)} of another form."
            )
        return content_input(parts, "inputs", self.model)


def _documents_to_rank(query: str, texts: Any) -> dict[str, Any]:
    """Return examples of a query and documents."""
    text = texts if isinstance(texts, str) else texts[0]
    body = {"query": query, "documents": [{"text": text}, "It rains today."]}
    return {"documents": body, "best": {**body, "top_n": 1, "return_documents": True}}


def _embeddings(
    version: str,
    texts: list[Any],
    types: Sequence[EmbeddingType],
    tokens: int,
    results: Sequence[Any],
) -> CohereEmbeddings:
    """Return the body of a response with vectors of some types, or without types as a list."""
    by_type: Any = {kind: [_typed(each, kind) for each in results] for kind in types}
    return {
        "id": str(uuid.uuid4()),
        "meta": _meta(version, tokens),
        "texts": texts,
        "response_type": "embeddings_by_type" if types else "embeddings_floats",
        "embeddings": by_type or list(results),
    }


def _ranking(
    model: str, version: str, tokens: int, results: Sequence[Any], *, nests: bool, repeats: bool
) -> CohereRanking:
    """Return the body of a response with documents, which are objects if the version nests them.

    Args:
        repeats: whether they are in `data`, too, as texts.
    """
    ranked = results[0]
    answer: CohereRanking = {
        "id": str(uuid.uuid4()),
        "meta": _meta(version, tokens),
        "object": "rerank",
        "model": model,
        "results": [_document(each, nests=nests) for each in ranked],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    if repeats:
        answer["data"] = [_document(each, nests=False) for each in ranked]
    return answer


def _meta(version: str, tokens: int) -> CohereMeta:
    counted: InputTokens = {"input_tokens": tokens}
    return {"api_version": {"version": version}, "billed_units": counted, "tokens": counted}


def _document(ranked: Mapping[str, Any], *, nests: bool) -> RankedDocument:
    result: RankedDocument = {"index": ranked["index"], "relevance_score": ranked["score"]}
    if "text" in ranked:
        result["document"] = {"text": ranked["text"]} if nests else ranked["text"]
    return result


def _typed(vector: Sequence[float], kind: EmbeddingType) -> Any:
    """Return a vector as an embedding of a type."""
    if kind == "float":
        return vector
    numbers = np.asarray(vector, dtype=np.float32)
    return in_base64(numbers) if kind == "base64" else quantized(numbers, kind).tolist()
