"""Clients that ask for speech: OpenAI's, and Hugging Face's, which waits or uses asyncio."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

from huggingface_hub import AsyncInferenceClient, InferenceClient
from openai import BadRequestError, OpenAI


def main(job: dict[str, Any]) -> dict[str, Any]:
    client = OpenAI(base_url=f"{job['url']}/1.0/v1", api_key="none", max_retries=0)
    asked: dict[str, Any] = {"model": "m", "input": job["text"], "voice": "alloy"}
    asked["extra_body"] = job["settings"]
    spoken = {
        kind: client.audio.speech.create(**asked, response_format=kind).content
        for kind in job["formats"]
    }
    with client.audio.speech.with_streaming_response.create(
        **asked, response_format="wav"
    ) as response:
        streamed = b"".join(response.iter_bytes())
    try:
        client.audio.speech.create(**asked, response_format="aac")
        refused = ""
    except BadRequestError as error:
        refused = str(error)
    found = InferenceClient(job["url"]).text_to_speech(job["text"], extra_body=job["settings"])
    return {
        "spoken": {kind: encoded(file) for kind, file in spoken.items()},
        "streamed": encoded(streamed),
        "refused": refused,
        "of_hugging_face": [encoded(found), encoded(asyncio.run(speak(**job)))],
    }


async def speak(url: str, text: str, settings: dict[str, Any], **_others: Any) -> bytes:
    async with AsyncInferenceClient(url) as client:
        return await client.text_to_speech(text, extra_body=settings)


def encoded(file: bytes) -> str:
    return base64.b64encode(file).decode()


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
