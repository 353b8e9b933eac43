"""LangChain's classes: embeddings by three protocols, their errors, and rankings."""

from __future__ import annotations

import json
import sys
from typing import Any

from cohere.core import ApiError
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from langchain_cohere import CohereEmbeddings, CohereRerank
from langchain_core.documents import Document
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_openai import OpenAIEmbeddings
from openai import BadRequestError


def main(job: dict[str, Any]) -> dict[str, Any]:
    classes = embedders(job["embed"])
    return {
        "embeddings": {name: embedded(each, job["embed"]) for name, each in classes.items()},
        "errors": {name: error_of(each) for name, each in classes.items()},
        "rankings": ranked(job["rerank"]),
    }


def embedders(job: dict[str, Any]) -> dict[str, Any]:
    """Return an object of each class."""
    url, own = job["url"], {"model": "m", "base_url": f"{job['url']}/1.0"}
    hugging_face = HuggingFaceEndpointEmbeddings(
        model="m", huggingfacehub_api_token="none", model_kwargs={"normalize": True}
    )
    # The class itself takes models of the hub only, and no URL.
    hugging_face.client = InferenceClient(url)
    return {
        # Without the check, texts are not tokenized by a tokenizer of OpenAI's.
        "openai": OpenAIEmbeddings(
            model="m", base_url=f"{url}/1.0/v1", api_key="none", check_embedding_ctx_length=False
        ),
        "hugging_face": hugging_face,
        "cohere": CohereEmbeddings(**own, cohere_api_key="none"),
    }


def embedded(embedder: Any, job: dict[str, Any]) -> list[Any]:
    """Return the embeddings of texts, and of the first of them as a query."""
    return [embedder.embed_documents(job["texts"]), embedder.embed_query(job["texts"][0])]


def error_of(embedder: Any) -> str:
    """Return the error of a text that is empty."""
    try:
        embedder.embed_documents([" "])
    except (ApiError, BadRequestError, HfHubHTTPError) as error:
        return str(error)
    return ""


def ranked(job: dict[str, Any]) -> dict[str, Any]:
    """Return the best documents and their scores."""
    documents = [Document(page_content=text) for text in job["documents"]]
    reranker = CohereRerank(model="m", base_url=f"{job['url']}/1.0", cohere_api_key="none", top_n=2)
    found = reranker.compress_documents(documents, job["query"])
    return {"cohere": [[each.page_content, each.metadata["relevance_score"]] for each in found]}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
