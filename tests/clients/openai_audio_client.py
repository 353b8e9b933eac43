"""OpenAI's own client: transcriptions, translations and speech.

A job has calls: the base URL of a model, the name of a method and its arguments; a file is a path.
"""

from __future__ import annotations

import base64
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
    if "file" in arguments:
        arguments["file"] = Path(arguments["file"])
    try:
        found = getattr(client.audio, method).create(model="m", **arguments)
    except openai.APIStatusError as error:
        return {"status": error.status_code, "message": str(error.message)}
    if isinstance(found, str):
        return found
    if method == "speech":
        return base64.b64encode(found.read()).decode()
    return {"class": type(found).__name__, **found.to_dict()}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
