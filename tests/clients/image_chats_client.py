"""Chats with images: OpenAI's own client and Hugging Face's, whole and as a stream."""

from __future__ import annotations

import json
import sys
from typing import Any

from huggingface_hub import InferenceClient
from openai import BadRequestError, OpenAI


def main(job: dict[str, Any]) -> dict[str, Any]:
    client = OpenAI(base_url=job["base_url"], api_key="none", max_retries=0)
    settings = {"model": "m", "messages": job["messages"], "max_tokens": job["max_tokens"]}
    chat = client.chat.completions.create(**settings)
    chunks = client.chat.completions.create(**settings, stream=True)
    hub = InferenceClient(base_url=job["base_url"], api_key="none")
    found = hub.chat_completion(job["messages"], max_tokens=job["max_tokens"])
    return {
        "chat": chat.choices[0].message.content,
        "usage": chat.usage.to_dict() if chat.usage else None,
        "parts": [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices],
        "hub": found.choices[0].message.content,
        "refused": refusal(client, job["broken"]),
    }


def refusal(client: OpenAI, messages: list[Any]) -> str:
    """Return the message of the error that a broken image has."""
    try:
        client.chat.completions.create(model="m", messages=messages)
    except BadRequestError as error:
        return error.message
    return ""


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
