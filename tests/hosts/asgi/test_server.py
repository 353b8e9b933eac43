"""The server prints how to ask it when it answers, and not before."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn

from hf_serve.hosts.asgi.server import Server
from hf_serve.scripts.serving.ports import free_ports


def test_the_greeting_comes_when_the_models_are_loaded(capsys: Any) -> None:
    async def application(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        print("Loaded")  # noqa: T201
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def run() -> None:
        port = free_ports().inference
        config = uvicorn.Config(application, port=port, lifespan="on", log_config=None)
        config.load()
        server = Server(config, "Ask me")
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        await server.shutdown()

    asyncio.run(run())
    assert capsys.readouterr().out == "Loaded\nAsk me\n"
