"""LangChain, LiteLLM and LlamaIndex at one URL: chats by one model and embeddings by another."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Before the import: it asks the network for the prices of models.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding

# It would print where to get help.
litellm.suppress_debug_info = True


def main(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "chats": {"langchain": langchain_chat(job), "litellm": litellm_chat(job)},
        "vectors": vectors(job),
    }


def langchain_chat(job: dict[str, Any]) -> dict[str, Any]:
    """Return an answer and its stream."""
    connection = {"base_url": job["base_url"], "api_key": job["key"]}
    chat = ChatOpenAI(model=job["writer"], temperature=0, max_tokens=job["count"], **connection)
    return {
        "answer": chat.invoke(job["messages"]).content,
        "stream": [chunk.content for chunk in chat.stream(job["messages"])],
    }


def litellm_chat(job: dict[str, Any]) -> dict[str, Any]:
    """Return an answer and its stream."""
    few = {"messages": job["messages"], "temperature": 0, "max_tokens": job["count"]}
    settings = {**litellm_connection(job, "writer"), **few}
    answer = litellm.completion(**settings)
    chunks = litellm.completion(**settings, stream=True)
    return {
        "answer": answer.choices[0].message.content,
        "stream": [chunk.choices[0].delta.content or "" for chunk in chunks],
    }


def vectors(job: dict[str, Any]) -> dict[str, Any]:
    """Return the embeddings of the texts by each framework."""
    url, key, model = job["base_url"], job["key"], job["embedder"]
    # Without the check, texts are not tokenized by a tokenizer of OpenAI's.
    langchain = OpenAIEmbeddings(
        model=model, base_url=url, api_key=key, check_embedding_ctx_length=False
    )
    llama_index = OpenAILikeEmbedding(model_name=model, api_base=url, api_key=key)
    answer = litellm.embedding(input=job["texts"], **litellm_connection(job, "embedder"))
    return {
        "langchain": langchain.embed_documents(job["texts"]),
        "litellm": [each["embedding"] for each in answer.data],
        "llama_index": llama_index.get_text_embedding_batch(job["texts"]),
    }


def litellm_connection(job: dict[str, Any], model: str) -> dict[str, Any]:
    return {"model": f"openai/{job[model]}", "api_base": job["base_url"], "api_key": job["key"]}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
