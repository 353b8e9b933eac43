"""LangChain's class for OpenAI's chats: an answer, a stream, an object, a tool and an error."""

from __future__ import annotations

import json
import sys
from typing import Any, Literal

import openai
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Animal(BaseModel):
    """Bounded, so that a model of stories comes to its end."""

    kind: Literal["fox", "bear"]


def main(job: dict[str, Any]) -> dict[str, Any]:
    chat, messages = chat_of(job, max_tokens=job["count"]), job["messages"]
    objects = chat_of(job, max_tokens=60)
    caller = objects.bind_tools([Animal], tool_choice="required")
    return {
        "answer": chat.invoke(messages).content,
        "stream": [chunk.content for chunk in chat.stream(messages)],
        "object": objects.with_structured_output(Animal).invoke(messages).kind in ("fox", "bear"),
        "called": [call["name"] for call in caller.invoke(messages).tool_calls],
        "error": error_of(chat_of(job, temperature=9), messages),
    }


def chat_of(job: dict[str, Any], **settings: Any) -> ChatOpenAI:
    connection = {"model": "m", "base_url": job["base_url"], "api_key": "none", "max_retries": 0}
    return ChatOpenAI(**{"temperature": 0, **connection, **settings})


def error_of(chat: ChatOpenAI, messages: Any) -> str:
    """Return the sentence of the error that is raised for a request that is refused."""
    try:
        chat.invoke(messages)
    except openai.BadRequestError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
