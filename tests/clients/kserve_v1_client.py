"""KServe's own REST client with its V1: predictions and explanations."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from kserve import InferenceRESTClient, RESTConfig


async def main(job: dict[str, Any]) -> list[dict[str, Any]]:
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        return [await ask(client, job["base_url"], **call) for call in job["calls"]]


async def ask(client: Any, base_url: str, verb: str, model: str, body: Any) -> dict[str, Any]:
    """Return the answer to a call, or the error that the client raises."""
    call = {"infer": client.infer, "explain": client.explain}[verb]
    try:
        return {"answer": await call(base_url, data=body, model_name=model)}
    except httpx.HTTPStatusError as error:
        return {"status": error.response.status_code, "message": str(error)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))  # noqa: T201
