"""OpenAI's agents, by chats and by responses: answers, streams, errors and a call of a tool."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Literal

import agents
import openai
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent

MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


def animal(kind: Literal["fox", "bear"]) -> str:
    """Look an animal up."""
    return kind


async def main(job: dict[str, Any]) -> dict[str, Any]:
    agents.set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=job["base_url"], api_key="none", max_retries=0) as client:
        tellers = {
            name: Agent(name="storyteller", model=model("m", client))
            for name, model in MODELS.items()
        }
        answers = {name: await asked(agent, job) for name, agent in tellers.items()}
        return {**answers, "called": await called(tellers["chat"], job)}


async def asked(agent: Agent, job: dict[str, Any]) -> dict[str, Any]:
    """Return what an agent answers, its stream, and the error of a wrong setting."""
    # A response that is cut is an error for agents, so the story has no limit.
    few = ModelSettings(temperature=0)
    teller = agent.clone(model_settings=few)
    return {
        "answer": (await Runner.run(teller, job["messages"])).final_output,
        "stream": await streamed(teller, job),
        "error": await error_of(agent.clone(model_settings=ModelSettings(temperature=9)), job),
    }


async def called(agent: Agent, job: dict[str, Any]) -> list[str]:
    """Return what happens when an agent has to call a tool."""
    must_call = ModelSettings(max_tokens=60, tool_choice="required")
    caller = agent.clone(
        tools=[agents.function_tool(animal)],
        model_settings=must_call,
        tool_use_behavior="stop_on_first_tool",
    )
    run = await Runner.run(caller, job["messages"])
    return [type(item).__name__ for item in run.new_items]


async def streamed(agent: Agent, job: dict[str, Any]) -> list[str]:
    """Return the parts of a stream, which add up to the text."""
    run = Runner.run_streamed(agent, job["messages"])
    parts = [
        event.data.delta
        async for event in run.stream_events()
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
    ]
    assert run.final_output == "".join(parts)
    return parts


async def error_of(agent: Agent, job: dict[str, Any]) -> str:
    """Return the sentence of the error that is raised for a request that is refused."""
    try:
        await Runner.run(agent, job["messages"])
    except openai.BadRequestError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))  # noqa: T201
