"""Cohere's `embed` and `rerank` below the model's path, and the `rerank` of Jina and infinity.

    v2/embed   {"texts": ["a text"], "input_type": "search_query", "embedding_types": ["float"]}
               -> {"embeddings": {"float": [[0.1, …]]}, "texts": […], "meta": {…}, "id": "…"}
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

import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt

from handlers.errors import BadRequest, RequestError, TextTooLong, Unprocessable
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.protocols.base import (
    BaseProtocol,
    Exchange,
    check_not_explained,
    check_operation,
    first_error,
    tokens_read,
    with_names,
)
from handlers.protocols.keys import KeyTable, honoured, ignored, refused
from handlers.schemas.embedding_types import in_base64, quantized
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.parameters import WholeNumbers, parse_body
from handlers.schemas.request import Request, TokenCount
from handlers.schemas.text_checks import json_type

EMBED, RERANK = "embed", "rerank"
# vLLM's word for as many tokens as the model takes.
WHOLE = -1
EmbeddingType = Literal["float", "base64", "int8", "uint8", "binary", "ubinary"]
InputType = Literal["search_query", "search_document", "classification", "clustering"]
# The embedding task's parameters of the vectors that become embeddings of all types.
FLOATS: Mapping[str, Any] = {"precision": "float32", "encoding_format": "float"}
# The names that checkpoints give the prompt of a kind of inputs.
PROMPTS: Mapping[str, Sequence[str]] = {
    "search_query": ("query",),
    "search_document": ("document", "passage", "corpus"),
    "classification": ("classification", "Classification"),
    "clustering": ("clustering", "Clustering"),
}
TRUNCATION: Mapping[str, Mapping[str, Any]] = {
    "NONE": {"truncate": False},
    "START": {"truncate": True, "truncation_direction": "left"},
    "END": {"truncate": True, "truncation_direction": "right"},
}
EMBED_KEYS = KeyTable(
    {
        **honoured(
            "texts",
            "inputs",
            "input_type",
            "embedding_types",
            "truncate",
            "output_dimension",
        ),
        **ignored("model", "priority", "request_id", "user"),
        **refused(
            images=[],
            max_tokens=[],
            chat_template=[],
            chat_template_kwargs=[],
            mm_processor_kwargs=[],
        ),
    }
)
# Those of Cohere, Jina, infinity, and vLLM's `rerank`.
RERANK_KEYS = KeyTable(
    {
        **honoured(
            "query",
            "documents",
            "top_n",
            "return_documents",
            "raw_scores",
            "use_activation",
            "truncate_prompt_tokens",
        ),
        **ignored("model", "priority", "request_id", "session_id", "user", "cache_salt", "padding"),
        **refused(
            # Cohere's defaults, which haystack's client sends.
            max_tokens_per_doc=4096,
            max_chunks_per_doc=10,
            max_tokens_per_query=[],
            max_doc_length=[],
            max_query_length=[],
            rank_fields=[["text"]],
            relevant_spans=[],
            return_embeddings=False,
            instruction=[],
            add_special_tokens=True,
            truncation_side="right",
            softmax=True,
            activation=True,
            chat_template=[],
            chat_template_kwargs=[],
            mm_processor_kwargs=[],
        ),
    }
)
TABLES: Mapping[str, KeyTable] = {EMBED: EMBED_KEYS, RERANK: RERANK_KEYS}


class Body(WholeNumbers):
    """Base of the bodies; `model` may be any name, and others are left to the table of keys."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, protected_namespaces=())


class EmbedBody(Body):
    """The body of `embed`."""

    texts: list[Any] | None = None
    inputs: list[Any] | None = None
    input_type: InputType | None = None
    embedding_types: Annotated[list[EmbeddingType], Field(min_length=1)] | None = None
    truncate: Literal["NONE", "START", "END"] | None = None
    output_dimension: PositiveInt | None = None

    def parameters(self, prompts: Sequence[str]) -> dict[str, Any]:
        """Return the parameters of the embedding task, but for those of the numbers.

        Args:
            prompts: the names of the checkpoint's prompts.
        """
        named = PROMPTS.get(self.input_type or "", ())
        prompt = next((name for name in named if name in prompts), None)
        dimensions = self.output_dimension
        return {
            **({} if prompt is None else {"prompt_name": prompt}),
            **({} if dimensions is None else {"dimensions": dimensions}),
            **TRUNCATION.get(self.truncate or "", {}),
        }


class RerankBody(Body):
    """The body of `rerank`."""

    query: Any
    documents: list[Any]
    top_n: PositiveInt | None = None
    return_documents: bool | None = None
    raw_scores: bool | None = None
    # Extensions of vLLM.
    use_activation: bool | None = None
    truncate_prompt_tokens: int | None = None

    def parameters(self, known: Collection[str]) -> dict[str, Any]:
        """Return the parameters of the ranking task.

        Args:
            known: the names of its parameters.

        Raises:
            Unprocessable: the task has none for what the body asks for.
        """
        names = {"top_n", "return_documents", "raw_scores"}
        given = self.model_dump(include=names, exclude_none=True)
        if self.use_activation is not None:
            given.setdefault("raw_scores", not self.use_activation)
        if self.truncate_prompt_tokens is not None:
            if self.truncate_prompt_tokens != WHOLE or "truncate" not in known:
                raise Unprocessable(
                    "truncate_prompt_tokens cannot be done by this server for this model"
                    f"; send {WHOLE}, for what the model takes, or leave it out."
                )
            given["truncate"] = True
        return given


@dataclass(frozen=True)
class Call(ABC):
    """What a response needs: the number in the path's version, and the name of the model."""

    version: str
    model_name: str

    @abstractmethod
    def error_in(self, outcomes: Sequence[Any]) -> RequestError | None:
        """Return the error that is the response, if a request failed."""

    @abstractmethod
    def body(self, exchange: Exchange, results: Sequence[Any]) -> dict[str, Any]:
        """Return the body of the response."""

    def head(self, tokens: int) -> dict[str, Any]:
        """Return the keys that all responses have.

        Args:
            tokens: how many the model read.
        """
        counted = {"input_tokens": tokens}
        api = {"version": self.version}
        meta = {"api_version": api, "billed_units": counted, "tokens": counted}
        return {"id": str(uuid.uuid4()), "meta": meta}


@dataclass(frozen=True)
class EmbedCall(Call):
    """A call of `embed`: its texts, and the types of embeddings; none for a list of vectors."""

    texts: Sequence[Any]
    types: Sequence[EmbeddingType]

    def error_in(self, outcomes: Sequence[Any]) -> RequestError | None:
        return first_error(outcomes, "texts")

    def body(self, exchange: Exchange, results: Sequence[Any]) -> dict[str, Any]:
        head = self.head(tokens_read(exchange.requests))
        if not self.types:
            found: Any = {"response_type": "embeddings_floats", "embeddings": list(results)}
        else:
            by_type = {kind: [_typed(each, kind) for each in results] for kind in self.types}
            found = {"response_type": "embeddings_by_type", "embeddings": by_type}
        return {**head, "texts": list(self.texts), **found}


@dataclass(frozen=True)
class RerankCall(Call):
    """A call of `rerank`; `nests` is whether a document in the response is an object."""

    nests: bool

    def error_in(self, outcomes: Sequence[Any]) -> RequestError | None:
        return first_error(outcomes, None)

    def body(self, exchange: Exchange, results: Sequence[Any]) -> dict[str, Any]:
        tokens = tokens_read(exchange.requests)
        return {
            **self.head(tokens),
            "object": "rerank",
            "model": self.model_name,
            "results": [self._result(each) for each in results[0]],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }

    def _result(self, ranked: Mapping[str, Any]) -> dict[str, Any]:
        result = {"index": ranked["index"], "relevance_score": ranked["score"]}
        if "text" in ranked:
            result["document"] = {"text": ranked["text"]} if self.nests else ranked["text"]
        return result


class Protocol(BaseProtocol):
    """Embeddings and rankings; `model` may be any name, since the path selects the model."""

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

    def parse(self, http_request: HttpRequest) -> Exchange:
        check_not_explained(http_request, http_request.path)
        return self._paths.get(http_request.path, self._parse_rerank)(http_request)

    def write(self, exchange: Exchange, outcomes: Sequence[Any]) -> HttpResponse:
        call: Call = exchange.context
        if error := call.error_in(outcomes):
            error = with_names(error, {"inputs": "texts"})
            return self.error_response(exchange.http_request, error)
        return HttpResponse(encode_json(call.body(exchange, outcomes)))

    def error_response(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        if isinstance(error, TextTooLong):
            # Cohere's status and words, which clients look for.
            error = BadRequest(f"too many tokens: {error}")
        return super().error_response(http_request, error)

    def error_body(self, error: RequestError) -> Any:
        """Return an error as Cohere has it, with the key that Jina's clients read as well."""
        return {"id": str(uuid.uuid4()), "message": str(error), "detail": str(error)}

    def _parse_embed(self, http_request: HttpRequest) -> Exchange:
        check_operation(self.model, "embed")
        http_request = EMBED_KEYS.check(http_request)
        body = parse_body(EmbedBody, http_request.content)
        texts = self._texts(body)
        version = http_request.path.partition("/")[0].removeprefix("v")
        default: list[EmbeddingType] = ["float"] if version == "2" else []
        types = list(dict.fromkeys(body.embedding_types or default))
        call = EmbedCall(version, self.model.name, texts, types)
        parameters = {**body.parameters(self.model.prompts), **FLOATS}
        requests = [
            Request(text, parameters, alone=False, token_count=TokenCount()) for text in texts
        ]
        return Exchange(http_request, requests, call)

    def _parse_rerank(self, http_request: HttpRequest) -> Exchange:
        check_operation(self.model, "rerank")
        http_request = RERANK_KEYS.check(http_request)
        body = parse_body(RerankBody, http_request.content)
        self.check_count(len(body.documents), "documents")
        documents = [_text_of(document) for document in body.documents]
        inputs = {"query": body.query, "documents": documents}
        version = http_request.path.rpartition("/")[0].removeprefix("v")
        # Clients of Jina and vLLM read the documents without asking for them; Cohere's need not.
        defaults = {"return_documents": True} if version == "1" else {}
        request = Request(
            inputs, {**defaults, **body.parameters(self.model.parameters)}, token_count=TokenCount()
        )
        call = RerankCall(version or "1", self.model.name, nests=bool(version))
        return Exchange(http_request, [request], call)

    def _texts(self, body: EmbedBody) -> list[Any]:
        """Return the texts of a body.

        Raises:
            RequestError: there are none or too many, or parts that are no texts.
        """
        if (body.texts is None) == (body.inputs is None):
            raise BadRequest("The body has neither texts nor inputs, or both; send texts.")
        if body.texts is not None:
            self.check_count(len(body.texts), "texts")
            return body.texts
        items = body.inputs or []
        self.check_count(len(items), "inputs")
        return [_text_of_input(each) for each in items]


def _typed(vector: Sequence[float], kind: EmbeddingType) -> Any:
    """Return a vector as an embedding of a type."""
    if kind == "float":
        return vector
    numbers = np.asarray(vector, dtype=np.float32)
    return in_base64(numbers) if kind == "base64" else quantized(numbers, kind).tolist()


def _text_of(document: Any) -> Any:
    """Return the text of a document, which may be an object with other keys as well."""
    return document.get("text") if isinstance(document, dict) else document


def _text_of_input(item: Any) -> str:
    """Return the text of an item of `inputs`, whose content is a list of parts."""
    parts = item.get("content") if isinstance(item, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise BadRequest(
            'inputs must be a list of {"content": [{"type": "text", "text": …}]}'
            f", and has {json_type(item)} of another form."
        )
    texts = [part.get("text") for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise Unprocessable("inputs has a part that is no text, and this model reads texts only.")
    return "\n".join(map(str, texts))
