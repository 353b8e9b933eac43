"""LlamaIndex's class for chats: answers, streams, completions, an object, a tool and an error."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Literal

import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


class Animal(BaseModel):
    """Bounded, so that a model of stories comes to its end."""

    kind: Literal["fox", "bear"]


def main(job: dict[str, Any]) -> dict[str, Any]:
    chat = chat_of(job, max_tokens=job["count"])
    completion = chat_of(job, max_tokens=job["count"], is_chat_model=False)
    caller = chat_of(job, max_tokens=60)
    messages = [ChatMessage(**message) for message in job["messages"]]
    return {
        "answer": chat.chat(messages).message.content,
        "stream": [part.delta for part in chat.stream_chat(messages)],
        "asynchronous": asyncio.run(chat.achat(messages)).message.content,
        "completion": completion.complete(job["prompt"]).text,
        "completion_stream": [part.delta for part in completion.stream_complete(job["prompt"])],
        "object": caller.structured_predict(Animal, PromptTemplate(job["prompt"])).kind,
        "called": called(caller, messages),
        # The class itself takes no such temperature.
        "error": error_of(chat_of(job, additional_kwargs={"temperature": 9}), messages),
    }


def chat_of(job: dict[str, Any], **settings: Any) -> OpenAILike:
    connection = {"model": job["model"], "api_base": job["base_url"], "api_key": job["key"]}
    can = {"is_chat_model": True, "is_function_calling_model": True}
    return OpenAILike(**{"temperature": 0, "max_retries": 0, **connection, **can, **settings})


def called(chat: OpenAILike, messages: list[ChatMessage]) -> list[str]:
    """Return the names of the tools that the model calls where it must call one."""
    tool = FunctionTool.from_defaults(
        fn=Animal, name="animal", description="An animal.", fn_schema=Animal
    )
    response = chat.chat_with_tools([tool], chat_history=messages, tool_required=True)
    return [call.tool_name for call in chat.get_tool_calls_from_response(response)]


def error_of(chat: OpenAILike, messages: list[ChatMessage]) -> str:
    """Return the sentence of the error that is raised for a request that is refused."""
    try:
        chat.chat(messages)
    except openai.BadRequestError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
