"""smolagents' model of an OpenAI server: a chat, a stream, a call of a tool and an error."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai
from smolagents import OpenAIModel, tool


def animal(kind: str) -> str:
    """Look an animal up.

    Args:
        kind: Which one. (choices: ["fox", "bear"])
    """
    return kind


def main(job: dict[str, Any]) -> dict[str, Any]:
    model = OpenAIModel(
        model_id="m",
        api_base=job["base_url"],
        api_key="none",
        client_kwargs={"max_retries": 0},
    )
    few = {"max_tokens": job["count"], "temperature": 0}
    called = model.generate(job["messages"], tools_to_call_from=[tool(animal)], max_tokens=60)
    return {
        "answer": model.generate(job["messages"], **few).content,
        "stream": [each.content for each in model.generate_stream(job["messages"], **few)],
        "called": [call.function.name for call in called.tool_calls or []],
        "error": error_of(model, job),
    }


def error_of(model: OpenAIModel, job: dict[str, Any]) -> str:
    """Return the sentence of the error that is raised for a request that is refused."""
    try:
        model.generate(job["messages"], temperature=9)
    except openai.BadRequestError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
