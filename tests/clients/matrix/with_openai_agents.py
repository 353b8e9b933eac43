"""OpenAI's agents, by chats and by responses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import agents
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent

from tests.clients.matrix.cells import TOO_HOT, TOOLS, Animal, main


class Chats:
    """`OpenAIChatCompletionsModel`."""

    model: Any = OpenAIChatCompletionsModel

    def __init__(self, base_url: str) -> None:
        agents.set_tracing_disabled(True)
        self.base_url = base_url

    def agent(self, **settings: Any) -> Agent:
        client = AsyncOpenAI(base_url=self.base_url, api_key="none", max_retries=0)
        return Agent(name="finder", model=self.model("m", client), **settings)

    def text(self, prompt: str) -> str | None:
        return str(Runner.run_sync(self.agent(), prompt).final_output)

    def stream(self, prompt: str) -> Iterable[str | None]:
        return asyncio.run(streamed(self.agent(), prompt))[0]

    def schema(self, prompt: str) -> Animal:
        answer = Runner.run_sync(self.agent(output_type=Animal), prompt)
        return Animal.model_validate(answer.final_output)

    def loop(self, prompt: str) -> str | None:
        tools = [agents.function_tool(each) for each in TOOLS.values()]
        return asyncio.run(streamed(self.agent(tools=tools), prompt))[1]

    def refused(self, prompt: str) -> Any:
        return Runner.run_sync(
            self.agent(model_settings=ModelSettings(temperature=TOO_HOT)), prompt
        )


class Responses(Chats):
    """`OpenAIResponsesModel`."""

    model = OpenAIResponsesModel


async def streamed(agent: Agent, prompt: str) -> tuple[list[str], str]:
    """Return the parts of all texts of a run, and its last text."""
    run = Runner.run_streamed(agent, prompt)
    parts = [
        event.data.delta
        async for event in run.stream_events()
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
    ]
    return parts, str(run.final_output)


if __name__ == "__main__":
    main({"chats": Chats, "responses": Responses})
