"""OpenAI's own client: transcriptions and translations.

A job has calls: the base URL of a model, the name of a method and its arguments; a file is a path.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import openai
from openai import OpenAI


def main(job: dict[str, Any]) -> list[Any]:
    return [ask(**call) for call in job["calls"]]


def ask(base_url: str, method: str, arguments: dict[str, Any]) -> Any:
    """Return what a method of the client returns, or the status and message of its error."""
    client = OpenAI(base_url=base_url, api_key="none", max_retries=0)
    file = Path(arguments.pop("file"))
    try:
        found = getattr(client.audio, method).create(model="m", file=file, **arguments)
    except openai.APIStatusError as error:
        return {"status": error.status_code, "message": str(error.message)}
    if isinstance(found, str):
        return found
    return {"class": type(found).__name__, **found.to_dict()}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
