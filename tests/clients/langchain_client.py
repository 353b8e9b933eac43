"""LangChain's classes: embeddings by three protocols, and rankings."""

from __future__ import annotations

import json
import sys
from typing import Any

from huggingface_hub import InferenceClient
from langchain_cohere import CohereEmbeddings, CohereRerank
from langchain_core.documents import Document
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_openai import OpenAIEmbeddings


def main(job: dict[str, Any]) -> dict[str, Any]:
    return {"embeddings": embedded(job["embed"]), "rankings": ranked(job["rerank"])}


def embedded(job: dict[str, Any]) -> dict[str, Any]:
    """Return the embeddings of texts, and of the first of them as a query."""
    url, own = job["url"], {"model": "m", "base_url": f"{job['url']}/1.0"}
    hugging_face = HuggingFaceEndpointEmbeddings(
        model="m", huggingfacehub_api_token="none", model_kwargs={"normalize": True}
    )
    # The class itself takes models of the hub only, and no URL.
    hugging_face.client = InferenceClient(url)
    classes = {
        # Without the check, texts are not tokenized by a tokenizer of OpenAI's.
        "openai": OpenAIEmbeddings(
            model="m", base_url=f"{url}/1.0/v1", api_key="none", check_embedding_ctx_length=False
        ),
        "hugging_face": hugging_face,
        "cohere": CohereEmbeddings(**own, cohere_api_key="none"),
    }
    return {
        name: [each.embed_documents(job["texts"]), each.embed_query(job["texts"][0])]
        for name, each in classes.items()
    }


def ranked(job: dict[str, Any]) -> dict[str, Any]:
    """Return the best documents and their scores."""
    documents = [Document(page_content=text) for text in job["documents"]]
    reranker = CohereRerank(model="m", base_url=f"{job['url']}/1.0", cohere_api_key="none", top_n=2)
    found = reranker.compress_documents(documents, job["query"])
    return {"cohere": [[each.page_content, each.metadata["relevance_score"]] for each in found]}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
