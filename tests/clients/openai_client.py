"""OpenAI's own client: chats, completions, responses, structured outputs and streams."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal

import openai
from openai import OpenAI
from pydantic import BaseModel, Field


class Animal(BaseModel):
    """Bounded, so that a model of stories comes to its end."""

    kind: Literal["fox", "bear"]
    age: Annotated[int, Field(ge=0, le=20)]
    nickname: Annotated[str, Field(max_length=8)]


def main(job: dict[str, Any]) -> dict[str, Any]:
    client = OpenAI(base_url=job["base_url"], api_key="none", max_retries=0)
    chat = client.chat.completions.create(model="m", messages=job["messages"], **job["settings"])
    text = client.completions.create(model="m", prompt=job["prompts"], **job["settings"])
    streamed = client.chat.completions.create(
        model="m",
        messages=job["messages"],
        stream=True,
        stream_options={"include_usage": True},
        **job["settings"],
    )
    chunks = list(streamed)
    scored = client.chat.completions.create(
        model="m", messages=job["messages"], logprobs=True, top_logprobs=2, **job["settings"]
    )
    biased = client.completions.create(
        model="m",
        prompt=job["prompts"][0],
        logprobs=2,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        logit_bias={"5": -100},
        **job["settings"],
    )
    parsed = client.chat.completions.parse(
        model="m", messages=job["messages"], response_format=Animal, max_tokens=100
    )
    return {
        "logprobs": scored.choices[0].to_dict()["logprobs"],
        "biased": biased.choices[0].to_dict(),
        "parsed": parsed.choices[0].message.parsed is not None,
        "called": called_by(client, job["messages"]),
        "streamed_call": streamed_call_by(client, job["messages"]),
        "models": [model.id for model in client.models.list()],
        "chat": chat.choices[0].message.content,
        "usage": chat.usage.to_dict() if chat.usage else None,
        "finish_reason": chat.choices[0].finish_reason,
        "texts": [choice.text for choice in text.choices],
        "parts": [chunk.choices[0].delta.content for chunk in chunks if chunk.choices],
        "streamed_usage": chunks[-1].usage.to_dict() if chunks[-1].usage else None,
        "mistake": mistake_of(client, job["messages"]),
        **responses(client, job["messages"]),
    }


def responses(client: OpenAI, messages: Any) -> dict[str, Any]:
    """Return a response, and the same as a stream."""
    few: dict[str, Any] = {"model": "m", "input": messages, "max_output_tokens": 20}
    response = client.responses.create(**few, temperature=0)
    events = list(client.responses.create(**few, temperature=0, stream=True))
    return {
        "response": response.output_text,
        "response_usage": response.usage.to_dict() if response.usage else None,
        "response_status": response.status,
        "event_types": [event.type for event in events],
        "deltas": [event.delta for event in events if event.type == "response.output_text.delta"],
        "unsupported": unsupported(client),
    }


def unsupported(client: OpenAI) -> dict[str, Any]:
    """Return the error that the client raises for an earlier response."""
    try:
        client.responses.create(model="m", input="a", previous_response_id="resp_1")
    except openai.UnprocessableEntityError as error:
        return {"status": error.status_code, "body": error.body}
    return {}


def called_by(client: OpenAI, messages: Any) -> dict[str, Any]:
    """Return the call of a tool that the client reads, and how many tokens its result costs."""
    settings: dict[str, Any] = {"model": "m", "tools": [openai.pydantic_function_tool(Animal)]}
    answer = client.chat.completions.parse(
        messages=messages, tool_choice="required", max_tokens=120, **settings
    )
    message = answer.choices[0].message
    (call,) = message.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "It runs."}
    turns = [*messages, message.to_dict(), result]
    after = client.chat.completions.create(messages=turns, max_tokens=2, **settings)
    return {
        "name": call.function.name,
        "parsed": isinstance(call.function.parsed_arguments, Animal),
        "content": message.content,
        "finish_reason": answer.choices[0].finish_reason,
        "after": after.choices[0].finish_reason,
    }


def streamed_call_by(client: OpenAI, messages: Any) -> dict[str, Any]:
    """Return the call that the client adds up from the chunks of a stream."""
    with client.chat.completions.stream(
        model="m",
        messages=messages,
        tools=[openai.pydantic_function_tool(Animal)],
        tool_choice={"type": "function", "function": {"name": "Animal"}},
        max_tokens=120,
    ) as stream:
        message = stream.get_final_completion().choices[0].message
    (call,) = message.tool_calls or []
    return {
        "name": call.function.name,
        "parsed": isinstance(call.function.parsed_arguments, Animal),
    }


def mistake_of(client: OpenAI, messages: Any) -> dict[str, Any]:
    """Return the error that the client raises for a request that is refused."""
    try:
        client.chat.completions.create(model="m", messages=messages, temperature=9)
    except openai.BadRequestError as error:
        return {"status": error.status_code, "body": error.body}
    return {}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
