"""Haystack's embedders of documents and of queries by four protocols, and rankers by two."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Before the import: this machine has nobody to report to.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.dataclasses import Document
from haystack.utils import Secret
from haystack_integrations.components.embedders.cohere import (
    CohereDocumentEmbedder,
    CohereTextEmbedder,
)
from haystack_integrations.components.embedders.huggingface_api import (
    HuggingFaceAPIDocumentEmbedder,
    HuggingFaceAPITextEmbedder,
)
from haystack_integrations.components.embedders.jina import JinaDocumentEmbedder, JinaTextEmbedder
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.jina import JinaRanker
from openai import BadRequestError

KEY = {"api_key": Secret.from_token("none")}


def main(job: dict[str, Any]) -> dict[str, Any]:
    openai = {**KEY, "model": "m", "api_base_url": f"{job['embed']['url']}/1.0/v1"}
    return {
        "embeddings": embedded(job["embed"]["url"], job["embed"]["texts"]),
        "errors": {"openai": error_of(OpenAITextEmbedder(**openai, dimensions=1_000_000))},
        "rankings": ranked(job["rerank"]),
    }


def embedded(url: str, texts: list[str]) -> dict[str, Any]:
    """Return the embeddings of documents, and of the first of them as a query."""
    own = f"{url}/1.0"
    hub: dict[str, Any] = {
        "api_type": "text_embeddings_inference",
        "api_params": {"url": url},
        "token": KEY["api_key"],
    }
    classes: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "openai": (
            OpenAIDocumentEmbedder,
            OpenAITextEmbedder,
            {**KEY, "model": "m", "api_base_url": f"{own}/v1", "max_retries": 0},
        ),
        "cohere": (CohereDocumentEmbedder, CohereTextEmbedder, {**KEY, "api_base_url": own}),
        "jina": (
            JinaDocumentEmbedder,
            JinaTextEmbedder,
            {**KEY, "base_url": f"{own}/v1/embeddings"},
        ),
        "hugging_face": (HuggingFaceAPIDocumentEmbedder, HuggingFaceAPITextEmbedder, hub),
    }
    found = {}
    for name, (of_documents, of_texts, settings) in classes.items():
        documents = [Document(content=text) for text in texts]
        answered = of_documents(**settings, progress_bar=False).run(documents)["documents"]
        query = of_texts(**settings).run(texts[0])["embedding"]
        found[name] = [[each.embedding for each in answered], query]
    return found


def ranked(job: dict[str, Any]) -> dict[str, Any]:
    """Return the best documents and their scores."""
    own = f"{job['url']}/1.0"
    classes = {
        "cohere": CohereRanker(**KEY, api_base_url=own, top_k=2),
        "jina": JinaRanker(**KEY, base_url=f"{own}/v1/rerank", top_k=2),
    }
    documents = [Document(content=text) for text in job["documents"]]
    return {
        name: [
            [each.content, each.score]
            for each in ranker.run(query=job["query"], documents=documents)["documents"]
        ]
        for name, ranker in classes.items()
    }


def error_of(embedder: OpenAITextEmbedder) -> str:
    """Return the error of vectors with too many dimensions."""
    try:
        embedder.run("Nina sings.")
    except BadRequestError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
