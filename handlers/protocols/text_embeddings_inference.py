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
from typing import Any

import numpy as np

from handlers.errors import BadRequest, RequestError, Unprocessable
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.protocols.base import (
    Exchange,
    check_operation,
    first_error,
    texts_or_ids,
)
from handlers.protocols.inference_server import (
    TOKENIZE_KEYS,
    InferenceServer,
    Write,
    read_object,
)
from handlers.protocols.items import check_keys, read_parameters
from handlers.protocols.keys import KeyTable, honoured
from handlers.schemas.model_info import ModelInfo, Service
from handlers.schemas.operation import Operation
from handlers.schemas.request import Request, TokenIds
from handlers.schemas.text_checks import json_type

SIDE = "truncation_direction"
TRUNCATION = ["truncate", SIDE]
TEXT_SETTINGS = [*TRUNCATION, "prompt_name"]
EMBED_SETTINGS = [*TEXT_SETTINGS, "normalize", "dimensions"]
COMPARED_SETTINGS = [*TEXT_SETTINGS, "prompt", "dimensions"]
# The server's own settings, whatever the YAML of the model sets.
UNIT_VECTORS = {"normalize": True, "precision": "float32", "encoding_format": "float"}
SENTENCES = ["source_sentence", "sentences"]
# Status and error type of this kit's statuses; all others are those of a backend that failed.
KINDS = {
    400: (400, "Validation"),
    413: (413, "Validation"),
    422: (422, "Validation"),
    503: (429, "Overloaded"),
}
BACKEND = (424, "Backend")
# The paths whose bodies have a list of items, and its key.
LISTS = {
    **dict.fromkeys(("embed", "embed_all", "embed_sparse", "predict", "tokenize"), "inputs"),
    "decode": "ids",
}
# LiteLLM sends Cohere's top_n.
RERANK_SETTINGS = ("raw_scores", "return_text", "top_n", *TRUNCATION)
TABLES: Mapping[str, KeyTable] = {
    "embed": KeyTable(honoured("inputs", *EMBED_SETTINGS)),
    "embed_all": KeyTable(honoured("inputs", *TEXT_SETTINGS)),
    "embed_sparse": KeyTable(honoured("inputs", *TEXT_SETTINGS)),
    "rerank": KeyTable(honoured("query", "texts", *RERANK_SETTINGS)),
    "similarity": KeyTable(honoured("inputs", "parameters")),
    "predict": KeyTable(honoured("inputs", "raw_scores", *TRUNCATION)),
    "decode": KeyTable(honoured("ids", "skip_special_tokens")),
    "tokenize": TOKENIZE_KEYS,
}
COMPARED = KeyTable(honoured(*SENTENCES))
MODEL_TYPES: Mapping[str, str] = {"predict": "classifier", "rerank": "reranker"}


class Protocol(InferenceServer):
    """TEI's paths; those of the tokenizer and the limits are for models that generate no texts."""

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        shared = {} if model.generates else self._paths
        embed = partial(self._parse_texts, "embed", UNIT_VECTORS, _listed)
        self._paths = {
            **shared,
            "embed": embed,
            "embed_all": partial(self._parse_texts, "embed_all", {}, _without_batch),
            "embed_sparse": partial(self._parse_texts, "embed_sparse", {}, _indices_and_values),
            "rerank": self._parse_rerank,
            "similarity": self._parse_similarity,
            "predict": self._parse_predict,
            "decode": self._parse_decode,
        }

    def write(self, exchange: Exchange, outcomes: Sequence[Any]) -> HttpResponse:
        if error := first_error(outcomes, LISTS.get(exchange.http_request.path)):
            return self.error_response(exchange.http_request, error)
        return super().write(exchange, outcomes)

    def error_body(self, error: RequestError) -> Any:
        _, kind = KINDS.get(error.status, BACKEND)
        return {"error": str(error), "error_type": kind}

    def status_of(self, error: RequestError) -> int:
        return KINDS.get(error.status, BACKEND)[0]

    def _parse_texts(
        self,
        operation: Service,
        defaults: Mapping[str, Any],
        write: Write,
        http_request: HttpRequest,
    ) -> Exchange:
        check_operation(self.model, operation)
        table = TABLES[operation]
        content = read_object(http_request.content, ["inputs"], table)
        texts = texts_or_ids(content["inputs"], "inputs", self.model.limits.max_rows)
        given = _parameters(content, [name for name in table.keys if name != "inputs"])
        cuts_both_ends = SIDE in self.model.parameters
        parameters = {**defaults, **(given if cuts_both_ends else _cut_at_their_end(given))}
        requests = [Request(each, parameters, alone=False) for each in texts]
        return Exchange(http_request, requests, write)

    def _parse_rerank(self, http_request: HttpRequest) -> Exchange:
        check_operation(self.model, "rerank")
        content = read_object(http_request.content, ["query", "texts"], TABLES["rerank"])
        inputs = {name: content[name] for name in ("query", "texts")}
        self._check_texts(inputs["texts"], "texts")
        parameters = _cut_at_their_end(_parameters(content, RERANK_SETTINGS))
        if "return_text" in parameters:
            parameters["return_documents"] = parameters.pop("return_text")
        return Exchange(http_request, [Request(inputs, parameters)], _first)

    def _parse_similarity(self, http_request: HttpRequest) -> Exchange:
        check_operation(self.model, "similarity", "embed")
        content = read_object(http_request.content, ["inputs"], TABLES["similarity"])
        inputs = read_object(content["inputs"], SENTENCES, COMPARED, owner="inputs")
        self._check_texts(inputs["sentences"], "sentences")
        given = read_parameters(content)
        parameters = _parameters(given, list(given))
        if self.model.operation == "similarity":
            return Exchange(http_request, [Request(inputs, parameters)], _first)
        check_keys(parameters, COMPARED_SETTINGS, "parameters")
        texts = [inputs["source_sentence"], *inputs["sentences"]]
        normalized = {**parameters, **UNIT_VECTORS}
        requests = [Request(each, normalized, alone=False) for each in texts]
        return Exchange(http_request, requests, _cosines)

    def _parse_predict(self, http_request: HttpRequest) -> Exchange:
        check_operation(self.model, "predict")
        content = read_object(http_request.content, ["inputs"], TABLES["predict"])
        self._check_truncate(content.get("truncate"))
        _cut_at_their_end(_parameters(content, TRUNCATION))
        inputs = content["inputs"]
        is_batch = isinstance(inputs, list) and isinstance(next(iter(inputs), None), list)
        items = inputs if is_batch else [inputs]
        self.check_count(len(items), "inputs")
        function = {"function_to_apply": "none"} if _raw_scores(content) else {}
        parameters = {"top_k": None, **function}
        requests = [Request(_text_or_pair(each), parameters, alone=False) for each in items]
        return Exchange(http_request, requests, _listed if is_batch else _first)

    def _parse_decode(self, http_request: HttpRequest) -> Exchange:
        content = read_object(http_request.content, ["ids"], TABLES["decode"])
        lists = texts_or_ids(content["ids"], "ids", self.model.limits.max_rows)
        skip = content.get("skip_special_tokens")
        parameters = {"skip_special_tokens": True if skip is None else skip}
        requests = [Request(_token_ids(each), parameters, alone=False) for each in lists]
        return Exchange(http_request, requests, _listed, Operation.DETOKENIZE)

    def _check_texts(self, texts: Any, name: str) -> None:
        if not isinstance(texts, list):
            raise BadRequest(f"{name} must be a list of texts, and is {json_type(texts)}.")
        self.check_count(len(texts), name)

    def _check_truncate(self, truncate: Any) -> None:
        """Check that a body asks for no other truncation than that of the YAML."""
        if not isinstance(truncate, bool | None):
            raise BadRequest(f"truncate must be true or false, and is {json_type(truncate)}.")
        if truncate not in (None, self.model.limits.truncation):
            does = "truncates" if self.model.limits.truncation else "refuses"
            raise Unprocessable(f"This model {does} texts that are too long; leave truncate out.")

    def _info(self, exchange: Exchange, results: Sequence[Any]) -> dict[str, Any]:
        limits, labels = self.model.limits, self.model.labels
        kind = MODEL_TYPES.get(self.model.operation or "", "embedding")
        facts = {
            "id2label": {str(number): label for number, label in enumerate(labels)},
            "label2id": {label: number for number, label in enumerate(labels)},
        }
        typed = {"model_type": {kind: {} if kind == "embedding" else facts}}
        return {
            **super()._info(exchange, results),
            "served_model_name": self.model.name,
            **(typed if self.model.operation else {}),
            "max_batch_tokens": self.model.settings.max_batch_tokens,
            "auto_truncate": limits.truncation,
        }


def _parameters(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the task's parameters among the keys of a body; null is the default there."""
    return {name: given[name] for name in names if given.get(name) is not None}


def _cut_at_their_end(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters without the side that texts are cut at, which is their end.

    Raises:
        Unprocessable: it is another side.
    """
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


def _listed(_exchange: Exchange, results: Sequence[Any]) -> Any:
    return list(results)


def _first(_exchange: Exchange, results: Sequence[Any]) -> Any:
    return results[0]


def _without_batch(_exchange: Exchange, results: Sequence[Any]) -> Any:
    """Return the vectors of the tokens of each text, which a pipeline puts in a list of one."""
    return [vectors for (vectors,) in results]


def _indices_and_values(_exchange: Exchange, results: Sequence[Any]) -> Any:
    return [
        [{"index": each["index"], "value": each["value"]} for each in weights]
        for weights in results
    ]


def _cosines(_exchange: Exchange, results: Sequence[Any]) -> Any:
    """Return the products of the first of vectors of length 1 with the others."""
    source, *sentences = np.array(results, dtype=np.float64)
    return (np.array(sentences) @ source).tolist()
