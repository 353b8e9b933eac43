"""instructor with OpenAI's client, by chats and by responses, and with Anthropic's.

It asks for objects: a stream is one of partial objects, and each step of a loop is an object of the
schema of a tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import instructor
from anthropic import Anthropic
from instructor import Mode
from openai import OpenAI
from pydantic import create_model

from tests.clients.matrix.cells import (
    MAX_TOKENS,
    TOO_HOT,
    Animal,
    AnimalKind,
    PlaceKind,
    call,
    calling,
    main,
)

STEPS: list[Any] = [create_model("animal", kind=AnimalKind), create_model("place", kind=PlaceKind)]


class Chats:
    """`from_openai`."""

    modes: tuple[Any, ...] = (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON_SCHEMA)
    settings: dict[str, Any] = {"model": "m", "max_retries": 0}

    def __init__(self, base_url: str) -> None:
        self.clients = [self.client(base_url, mode) for mode in self.modes]

    def client(self, base_url: str, mode: Any) -> Any:
        openai = OpenAI(base_url=base_url, api_key="none", max_retries=0)
        return instructor.from_openai(openai, mode=mode)

    def text(self, prompt: str) -> str | None:
        return self.answer(turn(prompt))

    def answer(self, messages: list[Any]) -> str:
        """Return an answer that is no object."""
        answer = self.clients[0].create(messages=messages, response_model=None, **self.settings)
        return self.text_of(answer)

    def text_of(self, answer: Any) -> str:
        return str(answer.choices[0].message.content)

    def stream(self, prompt: str) -> Iterable[str | None]:
        asked = {"messages": turn(calling(prompt, "PartialAnimal")), "response_model": Animal}
        *_, last = self.clients[0].create_partial(**asked, **self.settings)
        yield last.kind

    def schema(self, prompt: str) -> Animal:
        found = [
            client.create(
                messages=turn(prompt if mode is Mode.JSON_SCHEMA else calling(prompt, "Animal")),
                response_model=Animal,
                **self.settings,
            )
            for mode, client in zip(self.modes, self.clients, strict=True)
        ]
        (kind,) = {each.kind for each in found}
        return Animal(kind=kind)

    def loop(self, prompt: str) -> str | None:
        messages = turn(prompt)
        for step in STEPS:
            found, completion = self.clients[0].create_with_completion(
                messages=messages, response_model=step, **self.settings
            )
            result = call(step.__name__, found.model_dump())
            messages += self.turns(completion, result)
        return self.answer(messages)

    def turns(self, completion: Any, result: str) -> list[Any]:
        """Return the call of a tool and its result as the next messages."""
        message = completion.choices[0].message
        called = message.tool_calls[0].id
        return [
            message.to_dict(),
            {"role": "tool", "tool_call_id": called, "content": result},
        ]

    def refused(self, prompt: str) -> Any:
        asked = {"messages": turn(prompt), "response_model": Animal}
        hot = {"extra_body": {"temperature": TOO_HOT}}
        return self.clients[0].create(**asked, **hot, **self.settings)


class Responses(Chats):
    """`from_openai` with a mode of responses."""

    modes = (Mode.RESPONSES_TOOLS,)

    def text_of(self, answer: Any) -> str:
        return str(answer.output_text)

    def turns(self, completion: Any, result: str) -> list[Any]:
        # It takes no items but messages.
        return turn(result)


class Messages(Chats):
    """`from_anthropic`."""

    modes = (Mode.ANTHROPIC_TOOLS,)
    settings = {**Chats.settings, "max_tokens": MAX_TOKENS}

    def client(self, base_url: str, mode: Any) -> Any:
        anthropic = Anthropic(base_url=base_url, api_key="none", max_retries=0)
        return instructor.from_anthropic(anthropic, mode=mode)

    def text_of(self, answer: Any) -> str:
        return str(answer.content[0].text)

    def turns(self, completion: Any, result: str) -> list[Any]:
        (called,) = completion.content
        output = {"type": "tool_result", "tool_use_id": called.id, "content": result}
        return [
            {"role": "assistant", "content": [called.to_dict()]},
            {"role": "user", "content": [output]},
        ]


def turn(prompt: str) -> list[Any]:
    return [{"role": "user", "content": prompt}]


if __name__ == "__main__":
    main({"chats": Chats, "responses": Responses, "messages": Messages})
