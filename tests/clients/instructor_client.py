"""instructor with OpenAI's client: objects by each of its modes, their streams and an error."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal

import instructor
from instructor import Mode
from instructor.core import InstructorRetryException
from openai import OpenAI
from pydantic import BaseModel, Field

# The others write the schema into the prompt, which is longer than the model takes.
MODES = (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON_SCHEMA)


class Animal(BaseModel):
    """Bounded, so that a model of stories comes to its end."""

    kind: Literal["fox", "bear"]
    age: Annotated[int, Field(ge=0, le=20)]


def main(job: dict[str, Any]) -> dict[str, Any]:
    modes = {mode.name: client_of(job, mode) for mode in MODES}
    settings: dict[str, Any] = {
        "model": "m",
        "messages": job["messages"],
        "response_model": Animal,
        "max_retries": 0,
    }
    return {
        "answers": {name: dump(client.create(**settings)) for name, client in modes.items()},
        "streams": {
            name: [dump(each) for each in client.create_partial(**settings)]
            for name, client in modes.items()
        },
        "error": error_of(modes["TOOLS"], {**settings, "temperature": 9}),
    }


def client_of(job: dict[str, Any], mode: Mode) -> Any:
    openai = OpenAI(base_url=job["base_url"], api_key="none", max_retries=0)
    return instructor.from_openai(openai, mode=mode)


def error_of(client: Any, settings: dict[str, Any]) -> str:
    """Return the sentence of the error that the client raises for a request that is refused."""
    try:
        client.create(**settings)
    except InstructorRetryException as error:
        return str(error)
    return ""


def dump(animal: BaseModel) -> Any:
    return animal.model_dump(mode="json")


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
