"""pydantic-ai's agents: an answer, a stream, an object by a tool and by a schema, and an error."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Animal(BaseModel):
    """Bounded, so that a model of stories comes to its end."""

    kind: Literal["fox", "bear"]


async def main(job: dict[str, Any]) -> dict[str, Any]:
    provider = OpenAIProvider(base_url=job["base_url"], api_key="none")
    model, prompt = OpenAIChatModel("m", provider=provider), job["prompt"]
    few: Any = {"max_tokens": job["count"], "temperature": 0}
    agent = Agent(model, model_settings=few)
    async with agent.run_stream(prompt) as stream:
        parts = [part async for part in stream.stream_text(delta=True, debounce_by=None)]
    kinds: list[Any] = [Animal, NativeOutput(Animal)]
    objects = [await Agent(model, output_type=kind).run(prompt) for kind in kinds]
    return {
        "answer": (await agent.run(prompt)).output,
        "stream": parts,
        "objects": [each.output.kind for each in objects],
        "error": await error_of(agent, prompt),
    }


async def error_of(agent: Agent[None, str], prompt: str) -> str:
    """Return the sentence of the error that is raised for a request that is refused."""
    try:
        await agent.run(prompt, model_settings={"temperature": 9})
    except ModelHTTPError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))  # noqa: T201
