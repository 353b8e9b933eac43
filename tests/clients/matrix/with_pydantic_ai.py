"""pydantic-ai's agents, by chats, by responses and by messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.matrix.cells import MAX_TOKENS, TOO_HOT, TOOLS, Animal, calling, main


class Chats:
    """`OpenAIChatModel`."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    @property
    def model(self) -> Any:
        return OpenAIChatModel("m", provider=self.provider)

    @property
    def provider(self) -> OpenAIProvider:
        # Each run has a loop of its own, to which the connections of a client belong.
        client = AsyncOpenAI(base_url=self.base_url, api_key="none", max_retries=0)
        return OpenAIProvider(openai_client=client)

    def text(self, prompt: str) -> str | None:
        return Agent(self.model).run_sync(prompt).output

    def stream(self, prompt: str) -> Iterable[str | None]:
        return asyncio.run(streamed(Agent(self.model), prompt))

    def schema(self, prompt: str) -> Animal:
        native = Agent(self.model, output_type=NativeOutput(Animal)).run_sync(prompt).output
        # Its own way is a tool.
        tool = Agent(self.model, output_type=Animal)
        assert tool.run_sync(calling(prompt, "final_result")).output == native
        return native

    def loop(self, prompt: str) -> str | None:
        return Agent(self.model, tools=list(TOOLS.values())).run_sync(prompt).output

    def refused(self, prompt: str) -> Any:
        return Agent(self.model).run_sync(prompt, model_settings={"temperature": TOO_HOT})


class Responses(Chats):
    """`OpenAIResponsesModel`."""

    @property
    def model(self) -> Any:
        return OpenAIResponsesModel("m", provider=self.provider)


class Messages(Chats):
    """`AnthropicModel`."""

    @property
    def model(self) -> Any:
        client = AsyncAnthropic(base_url=self.base_url, api_key="none", max_retries=0)
        # The name is one of those that it has objects with.
        provider = AnthropicProvider(anthropic_client=client)
        few: Any = {"max_tokens": MAX_TOKENS}
        return AnthropicModel("claude-sonnet-4-5", provider=provider, settings=few)


async def streamed(agent: Agent[None, str], prompt: str) -> list[str]:
    async with agent.run_stream(prompt) as stream:
        return [part async for part in stream.stream_text(delta=True, debounce_by=None)]


if __name__ == "__main__":
    main({"chats": Chats, "responses": Responses, "messages": Messages})
