"""Clients of several APIs at one URL: OpenAI's with two models, Hugging Face's, and Triton's."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import openai
import tritonclient.http as triton
from huggingface_hub import InferenceClient


def main(job: dict[str, Any]) -> dict[str, Any]:
    url, writer, embedder = job["url"], job["writer"], job["embedder"]
    return {
        "openai": openai_answers(openai.OpenAI(base_url=f"{url}/v1", api_key=job["key"]), job),
        "hugging_face": hugging_face(url, job),
        "triton": triton_answers(url.removeprefix("http://"), job["classifier"], job),
        "models": [writer, embedder],
    }


def openai_answers(client: openai.OpenAI, job: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {"model": job["writer"], "messages": job["messages"]}
    settings |= {"max_tokens": 12, "temperature": 0}
    chat = client.chat.completions.create(**settings)
    chunks = list(client.chat.completions.create(**settings, stream=True))
    vectors = client.embeddings.create(model=job["embedder"], input=job["texts"])
    return {
        "chat": chat.choices[0].message.content,
        "stream": [each.choices[0].delta.content or "" for each in chunks if each.choices],
        "vectors": [each.embedding for each in vectors.data],
        "models": [model.id for model in client.models.list()],
        "model": client.models.retrieve(job["writer"]).id,
        "unknown": unknown(client, job["texts"]),
    }


def unknown(client: openai.OpenAI, texts: list[str]) -> Any:
    """Return the error that the client raises for a model that is not there."""
    try:
        client.embeddings.create(model="nobody", input=texts)
    except openai.NotFoundError as error:
        return error.body
    return None


def hugging_face(url: str, job: dict[str, Any]) -> dict[str, Any]:
    few: dict[str, Any] = {"max_tokens": 12, "temperature": 0.0}
    client = InferenceClient(base_url=url, token=job["key"])
    chat = client.chat_completion(job["messages"], model=job["writer"], **few)
    vectors = InferenceClient(f"{url}/embed", token=job["key"]).feature_extraction(job["texts"][0])
    return {"chat": chat.choices[0].message.content, "vectors": vectors.tolist()}


def triton_answers(host: str, model: str, job: dict[str, Any]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {job['key']}"}
    given = triton.InferInput("text", [1], "BYTES")
    given.set_data_from_numpy(np.array(job["texts"][:1], dtype=object))
    with triton.InferenceServerClient(host) as client:
        answers = {
            version: client.infer(model, [given], model_version=version, headers=headers)
            for version in ("", "1")
        }
        return {
            "ready": client.is_server_ready() and client.is_model_ready(model, headers=headers),
            "server": client.get_server_metadata(headers=headers)["name"],
            "inputs": client.get_model_metadata(model, headers=headers)["inputs"],
            "answers": [json.loads(each.as_numpy("output")[0, 0]) for each in answers.values()],
        }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
