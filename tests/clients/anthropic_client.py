"""Anthropic's own client: messages, streams, objects, tokens, two tools and an error."""

from __future__ import annotations

import json
import sys
from typing import Any, Literal

import anthropic
from anthropic import Anthropic
from pydantic import BaseModel


class Animal(BaseModel):
    """Bounded, so that a model of stories comes to its end."""

    kind: Literal["fox", "bear"]


TOOLS: list[Any] = [
    {
        "name": name,
        "description": "Look one up.",
        "input_schema": {
            "type": "object",
            "properties": {"kind": {"enum": kinds}},
            "required": ["kind"],
            "additionalProperties": False,
        },
    }
    for name, kinds in (("animal", ["fox", "bear"]), ("place", ["river", "forest"]))
]


def main(job: dict[str, Any]) -> dict[str, Any]:
    # The model of a URL without a model in its path is named in the body.
    client = Anthropic(base_url=job["url"], api_key=job["key"], max_retries=0)
    settings: dict[str, Any] = {"model": job["model"], "messages": job["messages"]}
    few = {**settings, "max_tokens": job["count"]}
    message = client.messages.create(system=job["system"], **few)
    with client.messages.stream(system=job["system"], **few) as stream:
        parts = list(stream.text_stream)
        streamed = stream.get_final_message()
    parsed = client.messages.parse(max_tokens=100, output_format=Animal, **settings)
    counted = client.messages.count_tokens(system=job["system"], **settings)
    return {
        "answer": message.content[0].text,
        "stream": parts,
        "streamed": streamed.content[0].text,
        "stop_reason": message.stop_reason,
        "usage": [each.usage.to_dict() for each in (message, streamed)],
        "object": isinstance(parsed.parsed_output, Animal),
        "counted": counted.input_tokens,
        **loop(client, settings),
        "error": error_of(client, {**few, "extra_body": {"temperature": 9}}),
    }


def loop(client: Anthropic, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the names of two tools that the model must call, and its answer to their results."""
    messages, called = list(settings["messages"]), []
    for tool in TOOLS:
        choice: Any = {"type": "tool", "name": tool["name"], "disable_parallel_tool_use": True}
        given = {**settings, "messages": messages, "max_tokens": 80, "tools": TOOLS}
        with client.messages.stream(tool_choice=choice, **given) as stream:
            message = stream.get_final_message()
        (call,) = [block for block in message.content if block.type == "tool_use"]
        called.append(call.name)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": call.input["kind"]}
        messages += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": [result]},
        ]
    final = client.messages.create(
        **{**settings, "messages": messages},
        tools=TOOLS,
        tool_choice={"type": "none"},
        max_tokens=5,
    )
    return {"called": called, "final": final.content[0].text}


def error_of(client: Anthropic, settings: dict[str, Any]) -> dict[str, str]:
    """Return the class and the sentence of the error of a request that is refused."""
    try:
        client.messages.create(**settings)
    except anthropic.BadRequestError as error:
        return {"class": type(error).__name__, "message": str(error), "type": str(error.type)}
    return {}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
