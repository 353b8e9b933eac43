"""OpenAI's own client: chats, completions and responses, as a whole and as streams."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai
from openai import OpenAI


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
    return {
        "logprobs": scored.choices[0].to_dict()["logprobs"],
        "biased": biased.choices[0].to_dict(),
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


def mistake_of(client: OpenAI, messages: Any) -> dict[str, Any]:
    """Return the error that the client raises for a request that is refused."""
    try:
        client.chat.completions.create(model="m", messages=messages, temperature=9)
    except openai.BadRequestError as error:
        return {"status": error.status_code, "body": error.body}
    return {}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
