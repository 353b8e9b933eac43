"""LiteLLM, by chats, by responses and by messages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

# Before the import: it asks the network for the prices of models.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

from tests.clients.matrix.cells import MAX_TOKENS, PARAMETERS, TOO_HOT, Animal, call, calling, main
from tests.clients.matrix.with_openai import Chats as OpenAIChats
from tests.clients.matrix.with_openai import Responses as OpenAIResponses
from tests.clients.matrix.with_openai import result_of, turn

# It would print where to get help.
litellm.suppress_debug_info = True


class Chats:
    """`completion` of `openai/m`."""

    model = "openai/m"

    def __init__(self, base_url: str) -> None:
        self.connection = {
            "model": self.model,
            "api_base": base_url,
            "api_key": "none",
            "max_retries": 0,
            "max_tokens": MAX_TOKENS,
        }

    def ask(self, prompt: str, **settings: Any) -> Any:
        return litellm.completion(**{"messages": turn(prompt), **self.connection, **settings})

    def text(self, prompt: str) -> str | None:
        return str(self.ask(prompt).choices[0].message.content)

    def stream(self, prompt: str) -> Iterable[str | None]:
        return (chunk.choices[0].delta.content for chunk in self.ask(prompt, stream=True))

    def schema(self, prompt: str) -> Animal:
        answer = self.ask(prompt, response_format=Animal)
        return Animal.model_validate_json(answer.choices[0].message.content)

    def loop(self, prompt: str) -> str | None:
        messages = turn(prompt)
        while True:
            answer = self.ask(prompt, messages=messages, tools=OpenAIChats.tools)
            message = answer.choices[0].message
            if not message.tool_calls:
                return str(message.content)
            messages.append(message.model_dump(exclude_none=True))
            for each in message.tool_calls:
                result = call(each.function.name, each.function.arguments)
                messages.append({"role": "tool", "tool_call_id": each.id, "content": result})

    def refused(self, prompt: str) -> Any:
        return self.ask(prompt, temperature=TOO_HOT)


class VllmChats(Chats):
    """`completion` of `hosted_vllm/m`."""

    model = "hosted_vllm/m"


class Messages(Chats):
    """`completion` of `anthropic/m`."""

    model = "anthropic/m"

    def schema(self, prompt: str) -> Animal:
        # It makes a tool of a schema.
        return super().schema(calling(prompt, "json_tool_call"))


class Responses(Chats):
    """`responses`."""

    def ask(self, prompt: str, **settings: Any) -> Any:
        connection = {**self.connection, "max_output_tokens": MAX_TOKENS}
        del connection["max_tokens"]
        return litellm.responses(**{"input": prompt, **connection, **settings})

    def text(self, prompt: str) -> str | None:
        return str(self.ask(prompt).output_text)

    def stream(self, prompt: str) -> Iterable[str | None]:
        for event in self.ask(prompt, stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta

    def schema(self, prompt: str) -> Animal:
        schema = {"type": "json_schema", "name": "Animal", "schema": PARAMETERS["animal"]}
        by_format = self.ask(prompt, text={"format": schema}).output_text
        by_class = self.ask(prompt, text_format=Animal).output_text
        assert by_class == by_format
        return Animal.model_validate_json(by_class)

    def loop(self, prompt: str) -> str | None:
        items = turn(prompt)
        while True:
            response = self.ask(prompt, input=items, tools=OpenAIResponses.tools)
            calls = [each for each in response.output if each.type == "function_call"]
            if not calls:
                return str(response.output_text)
            items += [each.model_dump(exclude_none=True) for each in response.output]
            items += [result_of(each) for each in calls]


if __name__ == "__main__":
    main(
        {
            "chats": Chats,
            "vLLM's chats": VllmChats,
            "responses": Responses,
            "messages": Messages,
        }
    )
