"""Text-embeddings-inference (TEI) below the model's path, `/predictions/<model>/<version>/`:

    embed          {"inputs": "a text"} or a list of texts or token ids -> [[0.1, …], …]
    embed_all      a text or a list of texts -> a vector for each token of each text
    embed_sparse   the same -> [[{"index": 5, "value": 0.3}, …], …]
    rerank         {"query": "…", "texts": ["…", …]} -> [{"index": 1, "score": 0.9}, …], best first
    similarity     {"inputs": {"source_sentence": "…", "sentences": ["…", …]}} -> [0.8, …]
    predict        {"inputs": "a text"}, a pair of texts, or a list of [text] and [text, pair]
                   -> [{"score": 0.9, "label": "A"}, …], or a list of them
    decode         {"ids": [5, 8]} or lists of ids -> ["a text", …]

and `tokenize`, `info` and `health` of a model that generates no texts. A response is complete or an
error: there are no errors in its lists. Errors have TEI's types, and its statuses for a server that
is overloaded or fails.

https://huggingface.github.io/text-embeddings-inference
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NotRequired

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt, with_config
from typing_extensions import TypedDict

from ..errors import BadRequest, RequestError, Unprocessable
from ..http.request import HttpRequest
from ..http.response import HttpResponse
from ..types.embeddings import PROMPT_KEYS
from ..types.model_info import Ability, ModelInfo
from ..types.parameters import json_type
from ..types.request import Operation, Request, TokenIds
from .base import Examples, KeyTable, ParsedRequest, Route, first_error, texts_or_ids
from .items import check_keys, read_parameters
from .text_generation_inference import InferenceServer, ServedInfo, Write, read_object

# Inputs of examples.
IDS = [5, 6, 7]
SENTENCES = {"source_sentence": "Nina sings in the bar.", "sentences": ["She sang in a pub."]}
SIDE = "truncation_direction"
TRUNCATION = ["truncate", SIDE]
COMPARED_SETTINGS = [*TRUNCATION, *PROMPT_KEYS, "dimensions"]
# The server's own settings, whatever the YAML of the model sets.
UNIT_VECTORS = {"normalize": True, "precision": "float32", "encoding_format": "float"}
ErrorType = Literal["Validation", "Overloaded", "Backend"]
# TEI's status and error type of a status here; for all others the model has failed.
STATUSES: Mapping[int, tuple[int, ErrorType]] = {
    400: (400, "Validation"),
    413: (413, "Validation"),
    422: (422, "Validation"),
    503: (429, "Overloaded"),
}
BACKEND: tuple[int, ErrorType] = (424, "Backend")
# The paths whose bodies have a list of items, and its key.
LIST_KEYS = {
    **dict.fromkeys(("embed", "embed_all", "embed_sparse", "predict", "tokenize"), "inputs"),
    "decode": "ids",
}
RERANK_SETTINGS = ("raw_scores", "return_text", "top_n", *TRUNCATION)
MODEL_TYPES: Mapping[str, str] = {"predict": "classifier", "rerank": "reranker"}


Texts = Annotated[list[str], Field(min_length=1)]
Ids = Annotated[list[int], Field(min_length=1)]
Direction = Literal["left", "right", "Left", "Right"]


@with_config(ConfigDict(extra="forbid"))
class TextsBody(TypedDict):
    """The body of `embed_all` and `embed_sparse`."""

    inputs: str | Texts
    truncate: NotRequired[bool | None]
    truncation_direction: NotRequired[Direction | None]
    prompt_name: NotRequired[str | None]
    prompt: NotRequired[str | None]
    input_type: NotRequired[str | None]
    task: NotRequired[str | None]


@with_config(ConfigDict(extra="forbid"))
class EmbedTextsBody(TypedDict):
    """The body of `embed`: a text or several, or the token ids of one or of several."""

    inputs: str | Texts | Ids | Annotated[list[Ids], Field(min_length=1)]
    truncate: NotRequired[bool | None]
    truncation_direction: NotRequired[Direction | None]
    prompt_name: NotRequired[str | None]
    prompt: NotRequired[str | None]
    input_type: NotRequired[str | None]
    task: NotRequired[str | None]
    normalize: NotRequired[bool | None]
    dimensions: NotRequired[PositiveInt | None]


EMBED_SETTINGS = [name for name in EmbedTextsBody.__annotations__ if name != "inputs"]


@with_config(ConfigDict(extra="forbid"))
class RerankTextsBody(TypedDict):
    """The body of `rerank`; `top_n` is Cohere's, which LiteLLM sends."""

    query: str
    texts: Texts
    raw_scores: NotRequired[bool | None]
    return_text: NotRequired[bool | None]
    top_n: NotRequired[PositiveInt | None]
    truncate: NotRequired[bool | None]
    truncation_direction: NotRequired[Direction | None]


@with_config(ConfigDict(extra="forbid"))
class ComparedSentences(TypedDict):
    """A sentence, and those that are compared with it."""

    source_sentence: str
    sentences: Texts


COMPARED = KeyTable.of(ComparedSentences)


@with_config(ConfigDict(extra="forbid"))
class SimilarityBody(TypedDict):
    """The body of `similarity`."""

    inputs: ComparedSentences
    parameters: NotRequired[dict[str, Any] | None]


OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2)]


@with_config(ConfigDict(extra="forbid"))
class PredictBody(TypedDict):
    """The body of `predict`: a text, a pair of texts, or lists of one and of two."""

    inputs: str | OneOrTwo | Annotated[list[OneOrTwo], Field(min_length=1)]
    raw_scores: NotRequired[bool | None]
    truncate: NotRequired[bool | None]
    truncation_direction: NotRequired[Direction | None]


@with_config(ConfigDict(extra="forbid"))
class DecodeBody(TypedDict):
    """The body of `decode`: the token ids of a text, or of several."""

    ids: Ids | Annotated[list[Ids], Field(min_length=1)]
    skip_special_tokens: NotRequired[bool | None]


class SparseValue(TypedDict):
    """An entry of the vocabulary by its number, and its weight."""

    index: int
    value: float


class Rank(TypedDict):
    """A text by its number in the request, and how well it fits the query."""

    index: int
    text: NotRequired[str]
    score: float


class Prediction(TypedDict):
    """A label and its score."""

    label: str
    score: float


class EmbeddingServerError(TypedDict):
    """An error in the shape of text-embeddings-inference."""

    error: str
    error_type: ErrorType


def _route(
    path: str,
    summary: str,
    abilities: tuple[Ability, ...],
    response: Any,
    body: Any,
    examples: Examples,
) -> Route:
    return Route(
        path,
        name=f"tei{path.title().replace('_', '')}",
        server="Text Embeddings Inference",
        summary=summary,
        response=response,
        error=EmbeddingServerError,
        abilities=abilities,
        body=body,
        keys=KeyTable.of(body),
        examples=examples,
        other_statuses={
            424: "The model failed.",
            429: "The model is overloaded, or the time limit has passed.",
        },
    )


def _texts(sample: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return examples of a text and of several, some with settings."""
    text = sample["inputs"]
    return {"one": {"inputs": text}, "list": {"inputs": [text, text], "truncate": True, **settings}}


def _ranked(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return examples of a query and texts."""
    query, texts = sample["inputs"].values()
    body = {
        "query": query,
        "texts": [texts if isinstance(texts, str) else texts[0], "It rains today."],
    }
    return {"texts": body, "scores": {**body, "raw_scores": True, "return_text": True}}


class Protocol(InferenceServer):
    """TEI's paths; `tokenize`, `info` and `health` are for models that generate no texts."""

    routes = (
        _route(
            "embed",
            "Return a vector for each text.",
            ("embed",),
            list[list[float]],
            EmbedTextsBody,
            lambda sample: _texts(sample, normalize=False, dimensions=4),
        ),
        _route(
            "embed_all",
            "Return a vector for each token of each text.",
            ("embed_all",),
            list[list[list[float]]],
            TextsBody,
            _texts,
        ),
        _route(
            "embed_sparse",
            "Return the weights of the vocabulary's entries for each text.",
            ("embed_sparse",),
            list[list[SparseValue]],
            TextsBody,
            _texts,
        ),
        _route(
            "rerank",
            "Return texts by how well they fit a query, best first.",
            ("rerank",),
            list[Rank],
            RerankTextsBody,
            _ranked,
        ),
        _route(
            "similarity",
            "Return the similarity of each sentence to another one.",
            ("similarity", "embed"),
            list[float],
            SimilarityBody,
            lambda _: {"one": {"inputs": SENTENCES, "parameters": {"truncate": True}}},
        ),
        _route(
            "predict",
            "Return every label of a text or a pair, best first.",
            ("predict",),
            list[Prediction] | list[list[Prediction]],
            PredictBody,
            lambda sample: {
                "one": {"inputs": sample["inputs"]},
                "list": {
                    "inputs": [[sample["inputs"]], [sample["inputs"]] * 2],
                    "raw_scores": True,
                },
            },
        ),
        _route(
            "decode",
            "Return the text of each list of tokens.",
            ("tokenizes",),
            list[str],
            DecodeBody,
            lambda _: {
                "one": {"ids": IDS},
                "list": {"ids": [IDS, IDS], "skip_special_tokens": False},
            },
        ),
    )
    _routes: ClassVar[Mapping[str, Route]] = {each.path: each for each in routes}

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        shared = {} if model.task.generation.texts else self._paths
        self._paths = {
            **shared,
            "embed": partial(self._parse_texts, UNIT_VECTORS, _listed),
            "embed_all": partial(self._parse_texts, {}, _without_batch),
            "embed_sparse": partial(self._parse_texts, {}, _indices_and_values),
            "rerank": self._parse_rerank,
            "similarity": self._parse_similarity,
            "predict": self._parse_predict,
            "decode": self._parse_decode,
        }

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        if error := first_error(outcomes, LIST_KEYS.get(parsed.http_request.path)):
            return self.error_response(parsed.http_request, error)
        return super().write(parsed, outcomes)

    def error_body(self, error: RequestError) -> EmbeddingServerError:
        _, kind = STATUSES.get(error.status, BACKEND)
        return {"error": str(error), "error_type": kind}

    def status_of(self, error: RequestError) -> int:
        return STATUSES.get(error.status, BACKEND)[0]

    def _read(self, http_request: HttpRequest, *required: str) -> Mapping[str, Any]:
        """Return the body of a request for a path, with the keys that it must have."""
        route = self._routes[http_request.path]
        route.check_abilities(self.model)
        return read_object(http_request.content, required, route.keys)

    def _parse_texts(
        self, defaults: Mapping[str, Any], write: Write, http_request: HttpRequest
    ) -> ParsedRequest:
        content = self._read(http_request, "inputs")
        texts = texts_or_ids(content["inputs"], "inputs", self.model.limits.max_rows)
        given = _parameters(content, EMBED_SETTINGS)
        cuts_both_ends = SIDE in self.model.parameters
        parameters = {**defaults, **(given if cuts_both_ends else _without_side(given))}
        requests = [Request(each, parameters, is_batch_item=True) for each in texts]
        return ParsedRequest(http_request, requests, write)

    def _parse_rerank(self, http_request: HttpRequest) -> ParsedRequest:
        content = self._read(http_request, "query", "texts")
        inputs = {name: content[name] for name in ("query", "texts")}
        self._check_texts(inputs["texts"], "texts")
        parameters = _without_side(_parameters(content, RERANK_SETTINGS))
        if "return_text" in parameters:
            parameters["return_documents"] = parameters.pop("return_text")
        return ParsedRequest(http_request, [Request(inputs, parameters)], _first)

    def _parse_similarity(self, http_request: HttpRequest) -> ParsedRequest:
        content = self._read(http_request, "inputs")
        inputs = read_object(content["inputs"], list(COMPARED.keys), COMPARED, owner="inputs")
        self._check_texts(inputs["sentences"], "sentences")
        given = read_parameters(content)
        parameters = _parameters(given, list(given))
        if self.model.task.service == "similarity":
            return ParsedRequest(http_request, [Request(inputs, parameters)], _first)
        check_keys(parameters, COMPARED_SETTINGS, "parameters")
        texts = [inputs["source_sentence"], *inputs["sentences"]]
        normalized = {**parameters, **UNIT_VECTORS}
        requests = [Request(each, normalized, is_batch_item=True) for each in texts]
        return ParsedRequest(http_request, requests, _cosines)

    def _parse_predict(self, http_request: HttpRequest) -> ParsedRequest:
        content = self._read(http_request, "inputs")
        self._check_truncate(content.get("truncate"))
        _without_side(_parameters(content, TRUNCATION))
        inputs = content["inputs"]
        is_batch = isinstance(inputs, list) and isinstance(next(iter(inputs), None), list)
        items = inputs if is_batch else [inputs]
        self.check_count(len(items), "inputs")
        function = {"function_to_apply": "none"} if _raw_scores(content) else {}
        parameters = {"top_k": None, **function}
        requests = [Request(_text_or_pair(each), parameters, is_batch_item=True) for each in items]
        return ParsedRequest(http_request, requests, _listed if is_batch else _first)

    def _parse_decode(self, http_request: HttpRequest) -> ParsedRequest:
        content = self._read(http_request, "ids")
        lists = texts_or_ids(content["ids"], "ids", self.model.limits.max_rows)
        skip = content.get("skip_special_tokens")
        parameters = {"skip_special_tokens": True if skip is None else skip}
        requests = [Request(_token_ids(each), parameters, is_batch_item=True) for each in lists]
        return ParsedRequest(http_request, requests, _listed, Operation.DETOKENIZE)

    def _check_texts(self, texts: Any, name: str) -> None:
        if not isinstance(texts, list):
            raise BadRequest(f"{name} must be a list of texts, and is {json_type(texts)}.")
        self.check_count(len(texts), name)

    def _check_truncate(self, truncate: Any) -> None:
        """Check that a body asks for the truncation of the YAML."""
        if not isinstance(truncate, bool | None):
            raise BadRequest(f"truncate must be true or false, and is {json_type(truncate)}.")
        if truncate not in (None, self.model.limits.truncation):
            does = "truncates" if self.model.limits.truncation else "refuses"
            raise Unprocessable(f"This model {does} texts that are too long; leave truncate out.")

    def _info(self, parsed: ParsedRequest, results: Sequence[Any]) -> ServedInfo:
        info, labels = super()._info(parsed, results), self.model.labels
        info["served_model_name"] = self.model.name
        if self.model.task.service:
            kind = MODEL_TYPES.get(self.model.task.service, "embedding")
            facts = {
                "id2label": {str(number): label for number, label in enumerate(labels)},
                "label2id": {label: number for number, label in enumerate(labels)},
            }
            info["model_type"] = {kind: {} if kind == "embedding" else facts}
        info["max_batch_tokens"] = self.model.settings.max_batch_tokens
        info["auto_truncate"] = self.model.limits.truncation
        return info


def _parameters(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the task's parameters among the keys of a body; null is the default there."""
    return {name: given[name] for name in names if given.get(name) is not None}


def _without_side(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters without the truncation side, which has to be the right one."""
    side = parameters.get(SIDE, "right")
    if not isinstance(side, str) or side.lower() != "right":
        raise Unprocessable(f"This model cuts long texts at their end; leave {SIDE} out.")
    return {name: value for name, value in parameters.items() if name != SIDE}


def _raw_scores(content: Mapping[str, Any]) -> bool:
    raw = content.get("raw_scores")
    if not isinstance(raw, bool | None):
        raise BadRequest(f"raw_scores must be true or false, and is {json_type(raw)}.")
    return bool(raw)


def _text_or_pair(item: Any) -> Any:
    """Return the inputs of the classification task: a text, or an object of a text and its pair."""
    if isinstance(item, list) and len(item) == 2:
        return {"text": item[0], "text_pair": item[1]}
    if isinstance(item, list) and len(item) != 1:
        raise BadRequest(f"inputs has a list of {len(item)} texts; send a text or a pair of texts.")
    return item[0] if isinstance(item, list) else item


def _token_ids(ids: Any) -> TokenIds:
    if not isinstance(ids, list) or any(type(each) is not int for each in ids):
        raise BadRequest("ids must be a list of token ids, or a list of such lists.")
    return TokenIds(tuple(ids))


def _listed(_parsed: ParsedRequest, results: Sequence[Any]) -> Any:
    return list(results)


def _first(_parsed: ParsedRequest, results: Sequence[Any]) -> Any:
    return results[0]


def _without_batch(_parsed: ParsedRequest, results: Sequence[Any]) -> Any:
    """Return the vectors of the tokens of each text, which a pipeline puts in a list of one."""
    return [vectors for (vectors,) in results]


def _indices_and_values(_parsed: ParsedRequest, results: Sequence[Any]) -> list[list[SparseValue]]:
    return [
        [{"index": each["index"], "value": each["value"]} for each in weights]
        for weights in results
    ]


def _cosines(_parsed: ParsedRequest, results: Sequence[Any]) -> Any:
    """Return the products of the first of vectors of length 1 with the others."""
    source, *sentences = np.array(results, dtype=np.float64)
    return (np.array(sentences) @ source).tolist()
