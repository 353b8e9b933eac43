"""OpenAI's own client: chats, parsed chats and streams, and responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openai import OpenAI

from tests.clients.matrix.cells import MAX_TOKENS, PARAMETERS, TOO_HOT, Animal, call, main


def connected(base_url: str) -> OpenAI:
    return OpenAI(base_url=base_url, api_key="none", max_retries=0)


def turn(prompt: str) -> list[Any]:
    return [{"role": "user", "content": prompt}]


class Chats:
    """`chat.completions.create`."""

    tools: list[Any] = [
        {
            "type": "function",
            "function": {"name": name, "parameters": parameters, "strict": True},
        }
        for name, parameters in PARAMETERS.items()
    ]

    def __init__(self, base_url: str) -> None:
        self.chats = connected(base_url).chat.completions

    def text(self, prompt: str) -> str | None:
        return self.chats.create(model="m", messages=turn(prompt)).choices[0].message.content

    def stream(self, prompt: str) -> Iterable[str | None]:
        for chunk in self.chats.create(model="m", messages=turn(prompt), stream=True):
            yield chunk.choices[0].delta.content

    def schema(self, prompt: str) -> Animal:
        schema = {"name": "Animal", "schema": PARAMETERS["animal"], "strict": True}
        wanted: Any = {"type": "json_schema", "json_schema": schema}
        answer = self.chats.create(model="m", messages=turn(prompt), response_format=wanted)
        return Animal.model_validate_json(answer.choices[0].message.content or "")

    def loop(self, prompt: str) -> str | None:
        messages = turn(prompt)
        while True:
            message = self.asked(messages)
            if not message.tool_calls:
                return str(message.content)
            messages.append(message.to_dict())
            for each in message.tool_calls:
                result = call(each.function.name, each.function.arguments)
                messages.append({"role": "tool", "tool_call_id": each.id, "content": result})

    def asked(self, messages: list[Any]) -> Any:
        """Return the next message of a loop."""
        answer = self.chats.create(model="m", messages=messages, tools=self.tools)
        return answer.choices[0].message

    def refused(self, prompt: str) -> Any:
        return self.chats.create(model="m", messages=turn(prompt), temperature=TOO_HOT)


class ParsedChats(Chats):
    """`chat.completions.parse`, and its stream."""

    def text(self, prompt: str) -> str | None:
        return self.chats.parse(model="m", messages=turn(prompt)).choices[0].message.content

    def stream(self, prompt: str) -> Iterable[str | None]:
        with self.chats.stream(model="m", messages=turn(prompt)) as stream:
            for event in stream:
                if event.type == "content.delta":
                    yield event.delta

    def schema(self, prompt: str) -> Animal:
        asked: Any = {"model": "m", "messages": turn(prompt), "response_format": Animal}
        with self.chats.stream(**asked) as stream:
            streamed = stream.get_final_completion().choices[0].message.parsed
        parsed = self.chats.parse(**asked).choices[0].message.parsed
        assert streamed == parsed
        return Animal.model_validate(parsed)

    def asked(self, messages: list[Any]) -> Any:
        with self.chats.stream(model="m", messages=messages, tools=self.tools) as stream:
            return stream.get_final_completion().choices[0].message

    def refused(self, prompt: str) -> Any:
        return self.chats.parse(model="m", messages=turn(prompt), temperature=TOO_HOT)


class Responses:
    """`responses`, whose loop sends every item again."""

    tools: list[Any] = [
        {"type": "function", "name": name, "parameters": parameters, "strict": True}
        for name, parameters in PARAMETERS.items()
    ]

    def __init__(self, base_url: str) -> None:
        self.responses = connected(base_url).responses

    def text(self, prompt: str) -> str | None:
        return self.responses.create(model="m", input=prompt).output_text

    def stream(self, prompt: str) -> Iterable[str | None]:
        for event in self.responses.create(model="m", input=prompt, stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta

    def schema(self, prompt: str) -> Animal:
        with self.responses.stream(model="m", input=prompt, text_format=Animal) as stream:
            streamed = stream.get_final_response().output_parsed
        parsed = self.responses.parse(model="m", input=prompt, text_format=Animal).output_parsed
        assert streamed == parsed
        return Animal.model_validate(parsed)

    def loop(self, prompt: str) -> str | None:
        items = turn(prompt)
        while True:
            response = self.responses.create(model="m", input=items, tools=self.tools)
            calls = [each for each in response.output if each.type == "function_call"]
            if not calls:
                return response.output_text
            items += [each.to_dict() for each in response.output]
            items += [result_of(each) for each in calls]

    def refused(self, prompt: str) -> Any:
        return self.responses.create(model="m", input=prompt, temperature=TOO_HOT)


def result_of(called: Any) -> dict[str, Any]:
    output = call(called.name, called.arguments)
    return {"type": "function_call_output", "call_id": called.call_id, "output": output}


class StoredResponses(Responses):
    """`responses` that go on from the one before, which is read and deleted."""

    def text(self, prompt: str) -> str | None:
        created = self.responses.create(
            model="m", input=prompt, max_output_tokens=MAX_TOKENS, metadata={"a": "b"}
        )
        found = self.responses.retrieve(created.id)
        assert found.to_dict() == created.to_dict()
        (item,) = self.responses.input_items.list(created.id)
        self.responses.delete(created.id)
        assert item.to_dict()["content"][0]["text"] == prompt
        return found.output_text

    def loop(self, prompt: str) -> str | None:
        response = self.responses.create(model="m", input=prompt, tools=self.tools)
        while calls := [each for each in response.output if each.type == "function_call"]:
            response = self.responses.create(
                model="m",
                input=[result_of(each) for each in calls],
                tools=self.tools,
                previous_response_id=response.id,
            )
        return response.output_text

    def refused(self, prompt: str) -> Any:
        created = self.responses.create(model="m", input=prompt)
        self.responses.delete(created.id)
        return self.responses.retrieve(created.id)


if __name__ == "__main__":
    main(
        {
            "chats": Chats,
            "parsed chats": ParsedChats,
            "responses": Responses,
            "stored responses": StoredResponses,
        }
    )
