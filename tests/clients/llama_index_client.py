"""LlamaIndex's classes: embeddings by three protocols where the job has texts, and rankings."""

from __future__ import annotations

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


def main(job: dict[str, Any]) -> dict[str, Any]:
    return embedded(job) if "texts" in job else ranked(job)


def embedded(job: dict[str, Any]) -> dict[str, Any]:
    """Return the embeddings of texts, and of the first of them as a query."""
    url = f"{job['url']}/1.0"
    classes = {
        "openai": OpenAILikeEmbedding(model_name="m", api_base=f"{url}/v1", api_key="none"),
        "tei": TextEmbeddingsInference(model_name="m", base_url=url),
        "hugging_face": HuggingFaceInferenceAPIEmbedding(model_name=job["url"], token="none"),
    }
    return {
        name: [
            each.get_text_embedding_batch(job["texts"]),
            each.get_query_embedding(job["texts"][0]),
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
