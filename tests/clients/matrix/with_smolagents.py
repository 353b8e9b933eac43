"""smolagents with its model of an OpenAI server, and with LiteLLM's of messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from smolagents import OpenAIModel, ToolCallingAgent, tool

from tests.clients.matrix.cells import PARAMETERS, TOO_HOT, TOOLS, Animal, main


class Chats:
    """`OpenAIModel`."""

    def __init__(self, base_url: str) -> None:
        self.model: Any = OpenAIModel(
            model_id="m", api_base=base_url, api_key="none", client_kwargs={"max_retries": 0}
        )

    def text(self, prompt: str) -> str | None:
        return str(self.model.generate(turn(prompt)).content)

    def stream(self, prompt: str) -> Iterable[str | None]:
        return (part.content for part in self.model.generate_stream(turn(prompt)))

    def schema(self, prompt: str) -> Animal:
        schema = {"name": "Animal", "schema": PARAMETERS["animal"], "strict": True}
        wanted = {"type": "json_schema", "json_schema": schema}
        answer = self.model.generate(turn(prompt), response_format=wanted)
        return Animal.model_validate_json(answer.content)

    def loop(self, prompt: str) -> str | None:
        tools = [tool(each) for each in TOOLS.values()]
        agent = ToolCallingAgent(tools=tools, model=self.model, max_steps=4, verbosity_level=-1)
        return str(agent.run(prompt))

    def refused(self, prompt: str) -> Any:
        return self.model.generate(turn(prompt), temperature=TOO_HOT)


def turn(prompt: str) -> list[Any]:
    return [{"role": "user", "content": [{"type": "text", "text": prompt}]}]


if __name__ == "__main__":
    main({"chats": Chats})
