"""OpenAI's own client: the types of responses and of their events, as it declares them."""

from __future__ import annotations

import json
import sys
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter


def main(job: dict[str, Any]) -> dict[str, int]:
    events = TypeAdapter[Any](ResponseStreamEvent)
    for response in job["responses"]:
        Response.model_validate(response)
    for event in job["events"]:
        events.validate_python(event)
    return {name: len(values) for name, values in job.items()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.load(sys.stdin))))
