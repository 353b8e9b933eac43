"""OpenAI's own client: LoRA adapters as models, whole and streamed, several at once."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import openai
from openai import AsyncOpenAI


async def main(job: dict[str, Any]) -> dict[str, Any]:
    async with AsyncOpenAI(base_url=job["base_url"], api_key="none", max_retries=0) as client:
        asked = [
            client.completions.create(model=model, prompt=prompt, **job["settings"])
            for model in job["models"]
            for prompt in job["prompts"]
        ]
        answers = await asyncio.gather(*asked)
        streams = [streamed(client, model, job) for model in job["models"]]
        return {
            "texts": [answer.choices[0].text for answer in answers],
            "answered_by": [answer.model for answer in answers],
            "streamed": await asyncio.gather(*streams),
            "listed": {
                model.id: (model.model_extra or {}).get("parent")
                async for model in client.models.list()
            },
            "unknown": await unknown(client, job),
        }


async def streamed(client: AsyncOpenAI, model: str, job: dict[str, Any]) -> str:
    """Return the text of a stream."""
    stream = await client.completions.create(
        model=model, prompt=job["prompts"][0], stream=True, **job["settings"]
    )
    return "".join([chunk.choices[0].text async for chunk in stream])


async def unknown(client: AsyncOpenAI, job: dict[str, Any]) -> dict[str, Any]:
    """Return the error that the client raises for a name that is no adapter."""
    try:
        await client.completions.create(model="no-adapter", prompt="a", **job["settings"])
    except openai.NotFoundError as error:
        return {"status": error.status_code, "code": error.code, "param": error.param}
    return {}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))  # noqa: T201
