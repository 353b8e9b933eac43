"""LlamaIndex's classes: embeddings by three protocols, and rankings by three."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.huggingface_api import HuggingFaceInferenceAPIEmbedding
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference as TeiRerank
from openai import BadRequestError


def main(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "embeddings": embedded(job["embed"]),
        "errors": {"openai": error_of(job["embed"])},
        "rankings": ranked(job["rerank"]),
    }


def error_of(job: dict[str, Any]) -> str:
    """Return the error of vectors with too many dimensions."""
    embedder = OpenAILikeEmbedding(
        model_name="m", api_base=f"{job['url']}/1.0/v1", api_key="none", dimensions=1_000_000
    )
    try:
        embedder.get_text_embedding_batch(["Nina sings."])
    except BadRequestError as error:
        return str(error)
    return ""


def embedded(job: dict[str, Any]) -> dict[str, Any]:
    """Return the embeddings of texts, and of the first of them as a query."""
    return asyncio.run(_embedded(job))


async def _embedded(job: dict[str, Any]) -> dict[str, Any]:
    """Run in one event loop: the class for Hugging Face keeps connections, which belong to one."""
    url, texts = f"{job['url']}/1.0", job["texts"]
    classes = {
        "openai": OpenAILikeEmbedding(model_name="m", api_base=f"{url}/v1", api_key="none"),
        "tei": TextEmbeddingsInference(model_name="m", base_url=url),
        "hugging_face": HuggingFaceInferenceAPIEmbedding(model_name=job["url"], token="none"),
    }
    return {
        name: [
            await each.aget_text_embedding_batch(texts),
            await each.aget_query_embedding(texts[0]),
        ]
        for name, each in classes.items()
    }


def ranked(job: dict[str, Any]) -> dict[str, Any]:
    """Return the best documents and their scores."""
    url = f"{job['url']}/1.0"
    nodes = [NodeWithScore(node=TextNode(text=text), score=0) for text in job["documents"]]
    classes = {
        "cohere": CohereRerank(model="m", api_key="none", base_url=url, top_n=2),
        "jina": JinaRerank(model="m", api_key="none", base_url=f"{url}/v1", top_n=2),
        "tei": TeiRerank(model_name="m", base_url=url, top_n=2),
    }
    return {
        name: [
            [each.node.get_content(), float(each.score or 0)]
            for each in ranker.postprocess_nodes(nodes, query_str=job["query"])
        ]
        for name, ranker in classes.items()
    }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
