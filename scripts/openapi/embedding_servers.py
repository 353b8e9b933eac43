"""The operations of embedding servers: those of TEI, Cohere, Jina and infinity, and of OpenAI's.

A mode has the paths of its `operation`, the word that these servers have for what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from handlers import tasks
from handlers.http.response import JSON
from handlers.protocols.cohere import EmbedBody, RerankBody
from handlers.protocols.openai.embeddings import EmbeddingBody
from handlers.tasks._text import TextTask
from scripts.openapi import cohere, examples, openai, tgi
from scripts.openapi.operation import Body, Operation
from scripts.openapi.shapes import NULL, TEXT, Schema, any_of, closed, list_of, or_null, ref

TEI, COHERE, OPENAI, INFINITY = "Text Embeddings Inference", "Cohere", "OpenAI", "Infinity"
MODEL = "/predictions/{model}/{version}/"
TEI_ERROR, COHERE_ERROR, OPENAI_ERROR = ("GenerationError",), ("CohereError",), ("OpenAIError",)
BUSY = {424: "The model failed.", 429: "The model is overloaded, or out of time."}
NUMBER: Schema = {"type": "number"}
IDS = list_of({"type": "integer"}, minItems=1)
VECTORS = list_of(list_of(NUMBER))
FLAG = any_of({"type": "boolean"}, NULL)
TEXTS = list_of(TEXT, minItems=1)
TEXTS_OR_IDS = any_of(TEXT, TEXTS, IDS, list_of(IDS, minItems=1))
DIRECTION = any_of({"enum": ["left", "right", "Left", "Right"]}, NULL)
DIMENSIONS = any_of({"type": "integer", "minimum": 1}, NULL)
CUT: Mapping[str, Schema] = {"truncate": FLAG}
CUT_AT: Mapping[str, Schema] = {**CUT, "truncation_direction": DIRECTION}
PROMPTED: Mapping[str, Schema] = {**CUT_AT, "prompt_name": any_of(TEXT, NULL)}
EMBEDDED: Mapping[str, Schema] = {**PROMPTED, "normalize": FLAG, "dimensions": DIMENSIONS}
SENTENCES = closed({"source_sentence": TEXT, "sentences": TEXTS}, "source_sentence", "sentences")
RERANKED = {
    "query": TEXT,
    "texts": TEXTS,
    "raw_scores": FLAG,
    "return_text": FLAG,
    "top_n": any_of({"type": "integer", "minimum": 1}, NULL),
    **CUT,
}
# A text, a pair of texts, or lists of one and of two.
PREDICTED = any_of(
    TEXT,
    list_of(TEXT, minItems=1, maxItems=2),
    list_of(list_of(TEXT, minItems=1, maxItems=2), minItems=1),
)
DOCUMENTS = list_of(
    any_of(TEXT, {"type": "object", "properties": {"text": TEXT}, "required": ["text"]}),
    minItems=1,
)
PART: Schema = {"type": "object", "properties": {"text": TEXT}, "required": ["text"]}
CONTENT: Schema = {
    "type": "object",
    "properties": {"content": list_of(PART, minItems=1)},
    "required": ["content"],
}
# The properties of bodies whose types say less than what is read.
PROPERTIES: Mapping[str, Mapping[str, Schema]] = {
    "EmbeddingBody": {"input": TEXTS_OR_IDS},
    "EmbedBody": {"texts": or_null(TEXTS), "inputs": or_null(list_of(CONTENT, minItems=1))},
    "RerankBody": {"query": TEXT, "documents": DOCUMENTS},
}


def component_types(mode: str) -> Sequence[Any]:
    """Return the types of a mode's bodies and answers."""
    return TYPES.get(tasks.get(mode).operation or "", ())


def refine(components: Mapping[str, Schema]) -> None:
    """Describe the bodies among the components of a document as they are read."""
    for name in components.keys() & PROPERTIES.keys():
        components[name]["properties"] |= PROPERTIES[name]


def operations(mode: str) -> list[Operation]:
    """Return the operations that embedding servers have for a mode."""
    task = tasks.get(mode)
    made = [make(mode) for make in OPERATIONS.get(task.operation or "", ())]
    return [*made, _decode()] if issubclass(task, TextTask) else made


def _tei(path: str, summary: str, answer: Schema, body: Schema, shown: Any) -> Operation:
    name = path.replace("_", " ").title().replace(" ", "")
    return Operation(
        f"{MODEL}{path}",
        f"tei{name}",
        TEI,
        summary,
        {JSON: answer},
        {JSON: Body(body, shown)},
        errors=TEI_ERROR,
        other_statuses=BUSY,
    )


def _embed(mode: str) -> Operation:
    body = closed({"inputs": TEXTS_OR_IDS, **EMBEDDED}, "inputs")
    shown = examples.embedded_texts(mode, normalize=False, dimensions=4)
    return _tei("embed", "Return a vector for each text.", VECTORS, body, shown)


def _embed_all(mode: str) -> Operation:
    body = closed({"inputs": any_of(TEXT, TEXTS), **CUT}, "inputs")
    shown = examples.embedded_texts(mode)
    summary = "Return a vector for each token of each text."
    return _tei("embed_all", summary, list_of(VECTORS), body, shown)


def _embed_sparse(mode: str) -> Operation:
    body = closed({"inputs": any_of(TEXT, TEXTS), **CUT}, "inputs")
    shown = examples.embedded_texts(mode)
    summary = "Return the weights of the vocabulary's entries for each text."
    return _tei("embed_sparse", summary, list_of(list_of(ref("SparseValue"))), body, shown)


def _similarity(mode: str) -> Operation:
    parameters = any_of(ref(tasks.get(mode).parameters.__name__), NULL)
    body = closed({"inputs": SENTENCES, "parameters": parameters}, "inputs")
    summary = "Return the similarity of each sentence to another one."
    return _tei("similarity", summary, list_of(NUMBER), body, examples.similarities())


def _predict(mode: str) -> Operation:
    labels = list_of(ref("Label"))
    body = closed({"inputs": PREDICTED, "raw_scores": FLAG, **CUT}, "inputs")
    summary = "Return every label of a text or a pair, best first."
    answer = any_of(labels, list_of(labels))
    return _tei("predict", summary, answer, body, examples.classified_texts(mode))


def _decode() -> Operation:
    lists = any_of(IDS, list_of(IDS, minItems=1))
    body = closed({"ids": lists, "skip_special_tokens": FLAG}, "ids")
    summary = "Return the text of each list of tokens."
    return _tei("decode", summary, list_of(TEXT), body, examples.decoded_ids())


def _rerank(mode: str) -> Operation:
    return Operation(
        f"{MODEL}rerank",
        "rerank",
        TEI,
        "Return texts by how well they fit a query, best first.",
        {JSON: any_of(list_of(ref("RankedText")), ref("CohereRanking"))},
        {
            JSON: Body(
                any_of(closed(RERANKED, "query", "texts"), ref("RerankBody")),
                {**examples.ranked_texts(mode), **examples.ranked_documents(mode)},
            )
        },
        "`texts` gets the answer of text-embeddings-inference, and `documents` that of infinity.",
        (*TEI_ERROR, *COHERE_ERROR, "Error"),
        BUSY,
    )


def _cohere_rerank(version: str, mode: str) -> Operation:
    return Operation(
        f"{MODEL}{version}/rerank",
        f"cohereRerank{version.title()}",
        COHERE,
        "Return documents by how well they fit a query, best first.",
        {JSON: ref("CohereRanking")},
        {JSON: Body(ref("RerankBody"), examples.ranked_documents(mode))},
        errors=COHERE_ERROR,
    )


def _cohere_embed(version: str, mode: str) -> Operation:
    return Operation(
        f"{MODEL}{version}/embed",
        f"cohereEmbed{version.title()}",
        COHERE,
        "Return a vector of each type for each text.",
        {JSON: ref("CohereEmbeddings")},
        {JSON: Body(ref("EmbedBody"), examples.texts_of_types(mode))},
        errors=COHERE_ERROR,
    )


def _embeddings(path: str, name: str, tag: str, mode: str) -> Operation:
    return Operation(
        f"{MODEL}{path}",
        name,
        tag,
        "Return a vector for each text.",
        {JSON: ref("EmbeddingList")},
        {JSON: Body(ref("EmbeddingBody"), examples.openai_texts(mode))},
        errors=OPENAI_ERROR,
    )


OPERATIONS: Mapping[str, Sequence[Callable[[str], Operation]]] = {
    "embed": (
        _embed,
        _similarity,
        partial(_embeddings, "v1/embeddings", "embeddings", OPENAI),
        partial(_embeddings, "embeddings", "infinityEmbeddings", INFINITY),
        partial(_cohere_embed, "v1"),
        partial(_cohere_embed, "v2"),
    ),
    "embed_all": (_embed_all,),
    "embed_sparse": (_embed_sparse,),
    "similarity": (_similarity,),
    "predict": (_predict,),
    "rerank": (_rerank, partial(_cohere_rerank, "v1"), partial(_cohere_rerank, "v2")),
}
TYPES: Mapping[str, Sequence[Any]] = {
    "embed": (
        EmbeddingBody,
        EmbedBody,
        openai.EmbeddingList,
        openai.OpenAIError,
        cohere.CohereEmbeddings,
        cohere.CohereError,
    ),
    "embed_sparse": (tgi.SparseValue,),
    "rerank": (RerankBody, cohere.CohereRanking, cohere.CohereError),
}
