"""The client of text-generation-inference: texts, their streams, chats and errors.

It cannot read streams of chats: it requires `tool_calls` in each part, which OpenAI leaves out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from text_generation import AsyncClient, Client
from text_generation.errors import BadRequestError, ValidationError
from text_generation.types import Grammar, GrammarType

SECONDS = 300
# More tokens than the model has positions.
MANY = 10**6
# A model of stories would write no such text.
FOX_OR_BEAR = Grammar(type=GrammarType.Regex, value="(fox|bear)")


def main(job: dict[str, Any]) -> dict[str, Any]:
    client, prompt = Client(job["url"], timeout=SECONDS), job["prompt"]
    few: dict[str, Any] = {"max_new_tokens": job["count"]}
    stopped = client.generate(prompt, max_new_tokens=job["count"], stop_sequences=["."])
    sampled = client.generate(
        prompt, max_new_tokens=5, do_sample=True, seed=7, top_p=0.9, top_n_tokens=2
    )
    return {
        "answer": as_json(client.generate(prompt, **few)),
        "stream": [as_json(each) for each in client.generate_stream(prompt, **few)],
        "stopped": as_json(stopped),
        "sampled": as_json(sampled),
        "constrained": client.generate(prompt, grammar=FOX_OR_BEAR).generated_text,
        "error": error_of(lambda: client.generate(prompt, max_new_tokens=MANY)),
        "stream_error": error_of(lambda: list(client.generate_stream(prompt, max_new_tokens=MANY))),
        **chatted(Client(job["versioned_url"], timeout=SECONDS), job),
        "asynchronous": asyncio.run(generate(AsyncClient(job["url"], timeout=SECONDS), job)),
    }


def chatted(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    """Return a chat and an error."""
    few: dict[str, Any] = {"messages": job["messages"], "max_tokens": job["count"], "seed": 7}
    return {
        "chat": client.chat(**few).choices[0].message.content,
        "chat_error": chat_error_of(lambda: client.chat(**{**few, "max_tokens": MANY})),
    }


async def generate(client: AsyncClient, job: dict[str, Any]) -> list[str]:
    """Return the text of an answer and of a stream."""
    stream = client.generate_stream(job["prompt"], max_new_tokens=job["count"])
    parts = [each.token.text async for each in stream]
    whole = await client.generate(job["prompt"], max_new_tokens=job["count"])
    return [whole.generated_text, "".join(parts)]


def error_of(call: Any) -> str:
    """Return the sentence of the error that the client raises for a request that is refused."""
    try:
        call()
    except ValidationError as error:
        return str(error)
    return ""


def chat_error_of(call: Any) -> str:
    """Return the sentence of the error for a chat, which OpenAI's API answers with an object."""
    try:
        call()
    except BadRequestError as error:
        return str(error.args[0]["message"])
    return ""


def as_json(model: Any) -> Any:
    return model.model_dump(mode="json", exclude_none=True)


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
