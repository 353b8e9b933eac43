"""Haystack's embedders of documents and of queries, and their error."""

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
from openai import BadRequestError


def main(job: dict[str, Any]) -> dict[str, Any]:
    settings = {
        "api_key": Secret.from_token("none"),
        "model": "m",
        "api_base_url": f"{job['embed']['url']}/1.0/v1",
        "max_retries": 0,
    }
    texts = job["embed"]["texts"]
    documents = OpenAIDocumentEmbedder(**settings, progress_bar=False)
    found = documents.run([Document(content=text) for text in texts])["documents"]
    query = OpenAITextEmbedder(**settings).run(texts[0])["embedding"]
    return {
        "embeddings": {"openai": [[each.embedding for each in found], query]},
        "errors": {"openai": error_of(OpenAITextEmbedder(**settings, dimensions=1_000_000))},
        "rankings": {},
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
