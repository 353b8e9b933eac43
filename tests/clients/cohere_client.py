"""Cohere's own clients, of both versions: embeddings where the job has texts, and rankings."""

from __future__ import annotations

import json
import sys
from typing import Any

import cohere
from cohere.core import ApiError


def main(job: dict[str, Any]) -> dict[str, Any]:
    return (embedded if "texts" in job else ranked)(job)


def clients(job: dict[str, Any]) -> tuple[cohere.Client, cohere.ClientV2]:
    arguments: dict[str, Any] = {"api_key": "none", "base_url": job["base_url"]}
    return cohere.Client(**arguments), cohere.ClientV2(**arguments)


def embedded(job: dict[str, Any]) -> dict[str, Any]:
    first, second = clients(job)
    settings: dict[str, Any] = {"model": "m", "texts": job["texts"], "input_type": "search_query"}
    types = second.embed(**settings, embedding_types=["float", "int8", "ubinary", "base64"])
    return {
        "first": first.embed(**settings).embeddings,
        "by_type": types.embeddings.model_dump(by_alias=True, exclude_none=True),
        "tokens": types.meta.billed_units.input_tokens,
        "mistake": mistake_of(second.embed, **{**settings, "texts": [*job["texts"], ""]}),
    }


def ranked(job: dict[str, Any]) -> dict[str, Any]:
    first, second = clients(job)
    settings: dict[str, Any] = {
        "model": "m",
        "query": job["query"],
        "documents": job["documents"],
        "top_n": 2,
    }
    shown = first.rerank(**settings, return_documents=True)
    return {
        "first": [[each.index, each.relevance_score] for each in shown.results],
        "documents": [each.document.text for each in shown.results if each.document],
        "second": [
            [each.index, each.relevance_score] for each in second.rerank(**settings).results
        ],
        "mistake": mistake_of(second.rerank, **{**settings, "documents": [""]}),
    }


def mistake_of(call: Any, **arguments: Any) -> dict[str, Any]:
    """Return the error that the client raises for a request that is refused."""
    try:
        call(**arguments)
    except ApiError as error:
        return {"status": error.status_code, "message": error.body["message"]}
    return {}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
