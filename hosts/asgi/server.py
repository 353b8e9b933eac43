"""The server of the application: uvicorn, with limits of connections."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.middleware.cors import CORSMiddleware

from hf_serve.hosts.asgi.access import ApiKeys
from hf_serve.hosts.asgi.application import Application, Settings
from hf_serve.hosts.asgi.backend import Backend
from hf_serve.hosts.compat.uvicorn import LimitedProtocol
from hf_serve.hosts.routes import INVOCATIONS, PING

# Longer than the idle time of the proxies before it.
KEEP_ALIVE_SECONDS = 65
MAX_CONNECTIONS = 4096


@dataclass(frozen=True)
class ServerSettings:
    """How the server is started.

    Attributes:
        host: the address that it binds to.
        port: its port.
        grace_seconds: how long running requests are answered after SIGTERM.
        max_request_bytes: the limit of a body.
        keys: the API keys.
        origins: the origins of web pages that may read responses; `*` for any.
        predict_routes: further paths of predictions by the only model.
        health_routes: further paths that tell whether every model answers.
        descriptor: an open Unix socket to listen at instead of the address.
        greeting: what is printed once the server answers.
    """

    host: str
    port: int
    grace_seconds: int
    max_request_bytes: int
    keys: ApiKeys
    origins: Sequence[str] = ()
    predict_routes: Sequence[str] = ()
    health_routes: Sequence[str] = ()
    descriptor: int | None = None
    greeting: str = ""

    @property
    def aliases(self) -> dict[str, str]:
        """The further paths, and the paths that they stand for."""
        predictions = dict.fromkeys(self.predict_routes, INVOCATIONS)
        return {**predictions, **dict.fromkeys(self.health_routes, PING)}


def create_application(backend: Backend, settings: ServerSettings) -> Any:
    """Return the application, which lets pages of the origins read its responses."""
    application = Application(
        backend, Settings(settings.max_request_bytes, settings.keys, settings.aliases)
    )
    if not settings.origins:
        return application
    return CORSMiddleware(
        application,
        allow_origins=list(settings.origins),
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["*"],
        expose_headers=["*"],
    )


def serve(backend: Backend, settings: ServerSettings) -> None:
    """Answer requests until SIGTERM."""
    config = uvicorn.Config(
        create_application(backend, settings),
        host=settings.host,
        port=settings.port,
        fd=settings.descriptor,
        http=LimitedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.grace_seconds,
    )
    Server(config, settings.greeting).run()


class Server(uvicorn.Server):
    """A server that prints a greeting once it answers.

    Breaks when uvicorn opens its sockets elsewhere than in `startup`.
    """

    def __init__(self, config: uvicorn.Config, greeting: str) -> None:
        super().__init__(config)
        self._greeting = greeting

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._greeting:
            print(self._greeting, flush=True)  # noqa: T201 - not a line of the log
