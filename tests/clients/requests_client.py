"""requests: bodies of any type, sent unchanged."""

from __future__ import annotations

import json
import sys
from typing import Any

import requests


def main(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [ask(job["base_url"] + call.pop("path"), **call) for call in job["calls"]]


def ask(url: str, body: str, **headers: str) -> dict[str, Any]:
    """Return the response; a header's name is written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = requests.post(url, data=body.encode(), headers=named, timeout=120)
    kind = answer.headers.get("content-type")
    return {"status": answer.status_code, "type": kind, "text": answer.text}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
