"""Clients of embeddings: OpenAI's, Hugging Face's and Triton's."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np
import openai
from huggingface_hub import InferenceClient
from openai import OpenAI
from tritonclient.http import InferenceServerClient, InferInput


def main(job: dict[str, Any]) -> dict[str, Any]:
    return {
        **of_openai(job),
        "hugging_face": of_hugging_face(job),
        "triton": of_triton(job),
    }


def of_openai(job: dict[str, Any]) -> dict[str, Any]:
    client = OpenAI(base_url=f"{job['url']}/1.0/v1", api_key="none", max_retries=0)
    texts, ids = job["texts"], job["ids"]
    found = client.embeddings.create(model="m", input=texts, user="u")
    few = client.embeddings.create(model="m", input=texts, dimensions=4, encoding_format="float")
    raw = client.embeddings.create(model="m", input=texts[0], encoding_format="base64")
    coded: Any = raw.data[0].embedding
    of_ids = client.embeddings.create(model="m", input=ids)
    try:
        client.embeddings.create(model="m", input=[*texts, ""])
        mistake = {}
    except openai.BadRequestError as error:
        mistake = {"status": error.status_code, "body": error.body}
    return {
        "openai": [each.embedding for each in found.data],
        "usage": found.usage.to_dict(),
        "dimensions": [each.embedding for each in few.data],
        "base64": np.frombuffer(base64.b64decode(coded), "<f4").tolist(),
        "ids": [each.embedding for each in of_ids.data],
        "mistake": mistake,
    }


def of_hugging_face(job: dict[str, Any]) -> Any:
    client = InferenceClient(job["url"])
    settings: dict[str, Any] = {"normalize": True, "truncate": True, "truncation_direction": "Left"}
    return client.feature_extraction(job["texts"][0], **settings).tolist()


def of_triton(job: dict[str, Any]) -> list[Any]:
    texts = np.array(job["texts"], dtype=np.object_)
    tensor = InferInput("text", [len(texts)], "BYTES")
    tensor.set_data_from_numpy(texts)
    url = f"{job['url']}/1.0".removeprefix("http://")
    with InferenceServerClient(url) as client:
        result = client.infer(job["model_name"], [tensor])
    return [json.loads(element) for element in result.as_numpy("output").ravel()]


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
