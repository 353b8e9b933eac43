"""LiteLLM with the providers that call servers like this one: chats, embeddings and rankings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

# Before the import: it asks the network for the prices of models.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

# It would print where to get help.
litellm.suppress_debug_info = True

CHATS = ("openai", "hosted_vllm")
# The path of each provider below that of a version of a model; LiteLLM appends the rest.
EMBEDDINGS = {
    "openai": "v1",
    "hosted_vllm": "v1",
    "jina_ai": "v1",
    "voyage": "v1",
    "nvidia_nim": "v1",
    "infinity": "",
    "cohere": "v2/embed",
    "huggingface": "",
}
# It asks the hub for the task of a model unless the request has it.
OF_PROVIDER = {"huggingface": {"input_type": "feature-extraction"}}
RANKINGS = {"hosted_vllm": "v1", "infinity": "", "cohere": "", "huggingface": ""}


def main(job: dict[str, Any]) -> dict[str, Any]:
    if "embed" in job:
        return {"embeddings": embedded(job["embed"]), "rankings": ranked(job["rerank"])}
    return {provider: chatted(provider, job) for provider in CHATS}


def chatted(provider: str, job: dict[str, Any]) -> dict[str, Any]:
    """Return a chat, its stream, and the errors of a wrong setting and of a long text."""
    settings = {
        **connection(provider, job["base_url"]),
        "messages": job["messages"],
        "max_tokens": job["count"],
        "temperature": 0,
        "max_retries": 0,
    }
    ask, wrong = partial(litellm.completion, **settings), {"temperature": 9}
    long = [{"role": "user", "content": "Once upon a time. " * 1000}]
    return {
        "answer": ask().choices[0].message.content,
        "stream": [chunk.choices[0].delta.content for chunk in ask(stream=True)],
        "error": error_of(lambda: ask(**wrong)),
        "stream_error": error_of(lambda: list(ask(**wrong, stream=True))),
        "too_long": error_of(lambda: ask(messages=long)),
    }


def embedded(job: dict[str, Any]) -> dict[str, Any]:
    """Return the embeddings of texts, and of the first of them alone."""
    found = {}
    for provider, path in EMBEDDINGS.items():
        url = f"{job['url']}/1.0/{path}".rstrip("/")
        settings = {**connection(provider, url), **OF_PROVIDER.get(provider, {})}
        found[provider] = [
            [each["embedding"] for each in litellm.embedding(input=job["texts"], **settings).data],
            litellm.embedding(input=job["texts"][:1], **settings).data[0]["embedding"],
        ]
    return found


def ranked(job: dict[str, Any]) -> dict[str, Any]:
    """Return the best documents and their scores."""
    found = {}
    for provider, path in RANKINGS.items():
        settings = connection(provider, f"{job['url']}/1.0/{path}".rstrip("/"))
        answer = litellm.rerank(query=job["query"], documents=job["documents"], top_n=2, **settings)
        found[provider] = [
            [job["documents"][each["index"]], each["relevance_score"]] for each in answer.results
        ]
    return found


def connection(provider: str, base_url: str) -> dict[str, Any]:
    return {"model": f"{provider}/m", "api_base": base_url, "api_key": "none"}


def error_of(call: Callable[[], Any]) -> dict[str, str]:
    """Return the class and the sentence of the error of a request that is refused."""
    try:
        call()
    except litellm.BadRequestError as error:
        return {"class": type(error).__name__, "message": str(error)}
    return {}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
