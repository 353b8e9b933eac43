"""Haystack's components: chats and responses, a stream, a tool and an error."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Literal

# Before the import: this machine has nobody to report to.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

import openai
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret


def animal(kind: Literal["fox", "bear"]) -> str:
    """Look an animal up."""
    return kind


def main(job: dict[str, Any]) -> dict[str, Any]:
    messages = [ChatMessage.from_dict(each) for each in job["messages"]]
    chat, responses = chat_of(job), responses_of(job)
    called = chat.run(
        messages,
        tools=[create_tool_from_function(animal)],
        generation_kwargs={"tool_choice": "required", "max_completion_tokens": 60},
    )
    return {
        "answer": text_of(chat.run(messages)),
        "stream": streamed(chat, messages),
        "response": text_of(responses.run(messages)),
        "response_stream": streamed(responses, messages),
        "called": [call.tool_name for call in called["replies"][0].tool_calls],
        "error": error_of(chat, messages),
    }


def chat_of(job: dict[str, Any]) -> OpenAIChatGenerator:
    settings = {"max_completion_tokens": job["count"], "temperature": 0}
    return OpenAIChatGenerator(**connection(job), generation_kwargs=settings)


def responses_of(job: dict[str, Any]) -> OpenAIResponsesChatGenerator:
    settings = {"max_output_tokens": job["count"], "temperature": 0}
    return OpenAIResponsesChatGenerator(**connection(job), generation_kwargs=settings)


def connection(job: dict[str, Any]) -> dict[str, Any]:
    key = Secret.from_token("none")
    return {"api_key": key, "model": "m", "api_base_url": job["base_url"], "max_retries": 0}


def streamed(generator: Any, messages: list[ChatMessage]) -> list[str]:
    """Return the parts of a stream, which add up to the text."""
    parts: list[str] = []
    answer = generator.run(messages, streaming_callback=lambda chunk: parts.append(chunk.content))
    assert text_of(answer) == "".join(parts)
    return parts


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["replies"][0].text)


def error_of(chat: OpenAIChatGenerator, messages: list[ChatMessage]) -> str:
    """Return the sentence of the error that is raised for a request that is refused."""
    try:
        chat.run(messages, generation_kwargs={"temperature": 9})
    except openai.BadRequestError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
