"""The model server of KServe's SDK, with the routes of models, bound to a host of one's choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn
from kserve.model_repository import ModelRepository
from kserve.protocol.dataplane import DataPlane

from handlers.http.limits import BodyLimits
from hosts.archive_handlers import set_num_threads
from hosts.archives import Archive
from hosts.compat import kserve
from hosts.compat.uvicorn import LimitedProtocol
from hosts.kserve.endpoints import Endpoints
from hosts.kserve.hosted_model import HostedModel

# Longer than the idle time of the proxies before it, as the SDK has it.
KEEP_ALIVE_SECONDS = 65
MAX_CONNECTIONS = 4096


@dataclass(frozen=True)
class Settings:
    """How the server is started.

    Attributes:
        grace_seconds: how long running requests are answered after SIGTERM.
    """

    host: str
    http_port: int
    grace_seconds: int
    limits: BodyLimits


class CheckedDataPlane(DataPlane):
    """What the SDK answers about the server, which depends on the models here."""

    async def ready(self) -> bool:
        """Return whether every model answers."""
        return self._all_healthy()

    async def live(self) -> dict[str, str]:
        """Return that the server is alive, or that it needs a new process."""
        return {"status": "alive" if self._all_healthy() else "dead"}

    def _all_healthy(self) -> bool:
        return all(model.is_healthy for model in self.model_registry.get_models().values())


def serve(archives: Sequence[tuple[str, Archive]], settings: Settings) -> None:
    """Load archives, each under a name, and answer requests until SIGTERM.

    Raises:
        ConfigError: an archive does not load.
    """
    set_num_threads(workers=1)
    models = [HostedModel(archive, name, settings.limits) for name, archive in archives]
    config = uvicorn.Config(
        create_application(models, settings.limits),
        host=settings.host,
        port=settings.http_port,
        http=LimitedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.grace_seconds,
    )
    uvicorn.Server(config).run()


def create_application(models: Sequence[HostedModel], limits: BodyLimits) -> Any:
    """Return the SDK's application with models, whose routes come first."""
    repository = ModelRepository()
    for model in models:
        repository.update(model)
    endpoints = Endpoints({each.name: each for each in models}, limits)
    return kserve.create_application(CheckedDataPlane(repository), endpoints.routes())
