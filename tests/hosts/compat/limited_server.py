"""A server on the port of its argument, whose connections have short limits."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

from hf_serve.hosts.compat.uvicorn import LimitedProtocol

LARGE = b"x" * (64 << 20)


class ShortLimits(LimitedProtocol):
    request_seconds = stalled_seconds = 1.0


async def answer(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    body = LARGE if scope["path"] == "/large" else b"whole"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    config = uvicorn.Config(
        answer, port=int(sys.argv[1]), http=ShortLimits, ws="none", lifespan="off", log_level="info"
    )
    uvicorn.Server(config).run()
