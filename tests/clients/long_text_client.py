"""What OpenAI's client and LangChain raise for a text that is too long, whole and as a stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import openai
from langchain_core.exceptions import ContextOverflowError
from langchain_openai import ChatOpenAI
from openai import OpenAI


def main(job: dict[str, Any]) -> dict[str, Any]:
    texts = {"long": job["long"], "many": job["fine"]}
    limits = {"long": 4, "many": job["many"]}
    return {name: raised(job, texts[name], limits[name]) for name in texts}


def raised(job: dict[str, Any], text: str, most: int) -> dict[str, Any]:
    """Return the errors of a text with a maximum of new tokens."""
    client = OpenAI(base_url=job["base_url"], api_key="none", max_retries=0)
    messages: Any = [{"role": "user", "content": text}]
    settings: Any = {"model": "m", "messages": messages, "max_tokens": most}
    chat = ChatOpenAI(
        model="m", base_url=job["base_url"], api_key="none", max_tokens=most, max_retries=0
    )
    return {
        "chat": code_of(lambda: client.chat.completions.create(**settings)),
        "stream": code_of(lambda: client.chat.completions.create(**settings, stream=True)),
        "completion": code_of(
            lambda: client.completions.create(model="m", prompt=text, max_tokens=most)
        ),
        "response": code_of(
            lambda: client.responses.create(model="m", input=text, max_output_tokens=most)
        ),
        "langchain": overflows(lambda: chat.invoke(text)),
        "langchain_stream": overflows(lambda: list(chat.stream(text))),
    }


def code_of(call: Callable[[], Any]) -> str | None:
    """Return the code of the error that OpenAI's client raises for status 400."""
    try:
        call()
    except openai.BadRequestError as error:
        return error.code
    return None


def overflows(call: Callable[[], Any]) -> bool:
    """Return whether LangChain recognises that the context is too long."""
    try:
        call()
    except ContextOverflowError:
        return True
    return False


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
