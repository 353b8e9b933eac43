"""LlamaIndex's chat classes, by chats and by responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from pydantic import create_model

from tests.clients.matrix.cells import TOO_HOT, TOOLS, Animal, call, calling, main

SCHEMAS = {
    "animal": create_model("A", kind=Literal["fox", "bear"]),
    "place": create_model("P", kind=Literal["river", "forest"]),
}


class Chats:
    """`OpenAILike`."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def chat(self, **settings: Any) -> Any:
        connection = {"model": "m", "api_base": self.base_url, "api_key": "none"}
        can = {"is_chat_model": True, "is_function_calling_model": True}
        return OpenAILike(**connection, **can, max_retries=0, temperature=0, **settings)

    def text(self, prompt: str) -> str | None:
        return self.chat().chat(turn(prompt)).message.content

    def stream(self, prompt: str) -> Iterable[str | None]:
        return (part.delta for part in self.chat().stream_chat(turn(prompt)))

    def schema(self, prompt: str) -> Animal:
        # By a tool.
        return self.predicted(calling(prompt, "Animal"))

    def predicted(self, prompt: str) -> Animal:
        found = self.chat().structured_predict(Animal, PromptTemplate(prompt))
        return Animal.model_validate(found)

    def loop(self, prompt: str) -> str | None:
        chat, messages = self.chat(), turn(prompt)
        tools = [
            FunctionTool.from_defaults(fn=each, fn_schema=SCHEMAS[name])
            for name, each in TOOLS.items()
        ]
        while True:
            response = chat.chat_with_tools(tools, chat_history=messages)
            calls = chat.get_tool_calls_from_response(response, error_on_no_tool_call=False)
            if not calls:
                return response.message.content
            messages.append(response.message)
            for each in calls:
                more = {"tool_call_id": each.tool_id}
                result = call(each.tool_name, each.tool_kwargs)
                messages.append(ChatMessage(role="tool", content=result, additional_kwargs=more))

    def refused(self, prompt: str) -> Any:
        # The class itself takes no such temperature.
        return self.chat(additional_kwargs={"temperature": TOO_HOT}).chat(turn(prompt))


class Responses(Chats):
    """`OpenAIResponses`, which looks the context of a model up by its name."""

    def chat(self, **settings: Any) -> Any:
        connection = {"model": "gpt-4o", "api_base": self.base_url, "api_key": "none"}
        return OpenAIResponses(**connection, max_retries=0, temperature=0, **settings)

    def schema(self, prompt: str) -> Animal:
        # By a format of the text.
        return self.predicted(prompt)


def turn(prompt: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=prompt)]


if __name__ == "__main__":
    main({"chats": Chats, "responses": Responses})
