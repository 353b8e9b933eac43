"""Anthropic's own client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anthropic import Anthropic

from tests.clients.matrix.cells import MAX_TOKENS, PARAMETERS, TOO_HOT, Animal, call, main

TOOLS: list[Any] = [
    {"name": name, "input_schema": parameters} for name, parameters in PARAMETERS.items()
]


class Messages:
    """`messages`."""

    def __init__(self, base_url: str) -> None:
        self.messages = Anthropic(base_url=base_url, api_key="none", max_retries=0).messages

    def text(self, prompt: str) -> str | None:
        return str(self.messages.create(**asked(prompt)).content[0].text)

    def stream(self, prompt: str) -> Iterable[str | None]:
        with self.messages.stream(**asked(prompt)) as stream:
            yield from stream.text_stream

    def schema(self, prompt: str) -> Animal:
        parsed = self.messages.parse(**asked(prompt), output_format=Animal).parsed_output
        return Animal.model_validate(parsed)

    def loop(self, prompt: str) -> str | None:
        given = asked(prompt)
        while True:
            with self.messages.stream(**given, tools=TOOLS) as stream:
                message = stream.get_final_message()
            if message.stop_reason != "tool_use":
                return str(message.content[0].text)
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": call(block.name, block.input),
                }
                for block in message.content
                if block.type == "tool_use"
            ]
            given["messages"] += [
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": results},
            ]

    def refused(self, prompt: str) -> Any:
        return self.messages.create(**asked(prompt), extra_body={"temperature": TOO_HOT})


def asked(prompt: str) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    return {"model": "m", "max_tokens": MAX_TOKENS, "messages": messages}


if __name__ == "__main__":
    main({"messages": Messages})
