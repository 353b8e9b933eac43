"""Clients that ask for images: OpenAI's, and Hugging Face's."""

from __future__ import annotations

import base64
import json
import sys
from io import BytesIO
from typing import Any

from huggingface_hub import InferenceClient
from openai import OpenAI, UnprocessableEntityError


def main(job: dict[str, Any]) -> dict[str, Any]:
    client = OpenAI(base_url=f"{job['url']}/1.0/v1", api_key="none", max_retries=0)
    asked: dict[str, Any] = {"model": "m", "prompt": job["prompt"], "extra_body": job["settings"]}
    made = client.images.generate(**asked, n=2, size=job["size"], response_format="b64_json")
    streamed = client.images.generate(**asked, stream=True)
    try:
        client.images.generate(**asked, response_format="url")
        refused = ""
    except UnprocessableEntityError as error:
        refused = str(error)
    image = InferenceClient(job["url"]).text_to_image(job["prompt"], **job["settings"])
    file = BytesIO()
    image.save(file, "PNG")
    return {
        "images": [each.b64_json for each in made.data or []],
        "events": [[each.type, each.b64_json] for each in streamed],
        "refused": refused,
        "of_hugging_face": base64.b64encode(file.getvalue()).decode(),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
