"""OpenAI's own client: structured outputs and calls of tools, with a model that writes nonsense."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal

import openai
from openai import OpenAI
from pydantic import BaseModel, Field

# A small model repeats itself, whitespace too, unless that is penalized.
SETTINGS: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Once upon a time"}],
    "frequency_penalty": 2,
    "max_tokens": 600,
}


class Animal(BaseModel):
    kind: Literal["fox", "bear"]
    age: Annotated[int, Field(ge=0, le=20)]


TOOLS: dict[str, Any] = {
    "tools": [openai.pydantic_function_tool(Animal)],
    "parallel_tool_calls": False,
}
NAMED = {"type": "function", "function": {"name": "Animal"}}


def main(job: dict[str, Any]) -> dict[str, Any]:
    client = OpenAI(base_url=job["base_url"], api_key="none", max_retries=0)
    chats = client.chat.completions
    parsed = chats.parse(response_format=Animal, **SETTINGS).choices[0]
    anything = chats.create(response_format={"type": "json_object"}, **SETTINGS).choices[0]
    required = chats.parse(tool_choice="required", **TOOLS, **SETTINGS).choices[0]
    named = chats.parse(tool_choice=NAMED, **TOOLS, **SETTINGS).choices[0]
    with chats.stream(tool_choice="required", **TOOLS, **SETTINGS) as stream:
        streamed = stream.get_final_completion().choices[0]
    auto = chats.create(tool_choice="auto", **TOOLS, **{**SETTINGS, "max_tokens": 50}).choices[0]
    return {
        "parsed": [type(parsed.message.parsed).__name__, parsed.finish_reason],
        # Its strings have no end.
        "object": (anything.message.content or "").lstrip()[:1],
        "required": calls(required),
        "named": calls(named),
        "streamed": calls(streamed),
        "auto": bool(auto.message.content or auto.message.tool_calls),
        "mistake": mistake_of(client),
    }


def calls(choice: Any) -> Any:
    """Return the types of the arguments of the calls, and the finish reason."""
    parsed = [call.function.parsed_arguments for call in choice.message.tool_calls]
    return [[type(each).__name__ for each in parsed], choice.finish_reason]


def mistake_of(client: OpenAI) -> int:
    """Return the status of a request with a schema that is none."""
    schema: Any = {"name": "a", "schema": {"type": "nothing"}}
    wrong: Any = {"type": "json_schema", "json_schema": schema}
    try:
        client.chat.completions.create(response_format=wrong, **SETTINGS)
    except openai.APIStatusError as error:
        return error.status_code
    return 200


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
