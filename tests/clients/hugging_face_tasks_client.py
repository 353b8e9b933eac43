"""Hugging Face's own client: any of its methods for texts, by the client that waits and by asyncio.

A job has calls: the URL of a model, the name of a method and its arguments.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from io import BytesIO
from typing import Any

import numpy as np
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.inference._generated.types.base import BaseInferenceType
from PIL import Image

# Settings of the hub.
HEADERS = {"x-use-cache": "0", "x-wait-for-model": "true"}


def main(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "answers": [ask(**call) for call in job["calls"]],
        "asynchronous": asyncio.run(ask_all(job["calls"])),
    }


def ask(url: str, method: str, arguments: dict[str, Any]) -> Any:
    """Return what a method of the client returns, or the error that it raises."""
    try:
        return shown(getattr(InferenceClient(url, headers=HEADERS), method)(**arguments))
    except HfHubHTTPError as error:
        return mistake(error)


async def ask_all(calls: list[dict[str, Any]]) -> list[Any]:
    return [await ask_asynchronously(**call) for call in calls]


async def ask_asynchronously(url: str, method: str, arguments: dict[str, Any]) -> Any:
    async with AsyncInferenceClient(url, headers=HEADERS) as client:
        try:
            return shown(await getattr(client, method)(**arguments))
        except HfHubHTTPError as error:
            return mistake(error)


def shown(answer: Any) -> Any:
    """Return an answer as JSON; an object of a class of the client as the class and its values."""
    if isinstance(answer, BaseInferenceType):
        values = {name: shown(value) for name, value in answer.items()}
        return {"class": type(answer).__name__, **values}
    if isinstance(answer, Image.Image):
        stream = BytesIO()
        answer.save(stream, "PNG")
        return base64.b64encode(stream.getvalue()).decode()
    if isinstance(answer, list):
        return [shown(each) for each in answer]
    return answer.tolist() if isinstance(answer, np.ndarray) else answer


def mistake(error: HfHubHTTPError) -> dict[str, Any]:
    return {"status": error.response.status_code, "message": error.server_message}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
