"""LangChain's chat classes for OpenAI, by chats and by responses, and for Anthropic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.matrix.cells import MAX_TOKENS, TOO_HOT, TOOLS, Animal, calling, main

CONNECTION = {"model": "m", "api_key": "none", "max_retries": 0}


class Chats:
    """`ChatOpenAI`."""

    settings: dict[str, Any] = {}

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def chat(self, **settings: Any) -> Any:
        return ChatOpenAI(base_url=self.base_url, **{**CONNECTION, **self.settings, **settings})

    def text(self, prompt: str) -> str | None:
        return str(self.chat().invoke(prompt).text)

    def stream(self, prompt: str) -> Iterable[str | None]:
        return (str(chunk.text) for chunk in self.chat().stream(prompt))

    def schema(self, prompt: str) -> Animal:
        native = self.chat().with_structured_output(Animal, method="json_schema").invoke(prompt)
        by_tool = self.chat().with_structured_output(Animal, method="function_calling")
        assert by_tool.invoke(calling(prompt, "Animal")) == native
        return Animal.model_validate(native)

    def loop(self, prompt: str) -> str | None:
        tools = {name: tool(each) for name, each in TOOLS.items()}
        caller, messages = self.chat().bind_tools(list(tools.values())), [HumanMessage(prompt)]
        while True:
            messages.append(caller.invoke(messages))
            if not messages[-1].tool_calls:
                return str(messages[-1].text)
            messages += [tools[each["name"]].invoke(each) for each in messages[-1].tool_calls]

    def refused(self, prompt: str) -> Any:
        return self.chat(temperature=TOO_HOT).invoke(prompt)


class Responses(Chats):
    """`ChatOpenAI` with `use_responses_api`."""

    settings = {"use_responses_api": True}


class StoredResponses(Chats):
    """`ChatOpenAI` that goes on from the response before."""

    settings = {"use_responses_api": True, "use_previous_response_id": True}


class Messages(Chats):
    """`ChatAnthropic`."""

    def chat(self, **settings: Any) -> Any:
        return ChatAnthropic(
            base_url=self.base_url, **CONNECTION, max_tokens=MAX_TOKENS, **settings
        )


if __name__ == "__main__":
    main(
        {
            "chats": Chats,
            "responses": Responses,
            "stored responses": StoredResponses,
            "messages": Messages,
        }
    )
