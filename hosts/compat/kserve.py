"""What is undocumented in KServe's SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kserve.model_server import app
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.model_repository_extension import ModelRepositoryExtension
from kserve.protocol.rest.server import RESTServer


def create_application(data_plane: DataPlane, routes: Sequence[Any]) -> Any:
    """Return the SDK's application with further routes, which precede its own.

    The SDK's own server would bind it to 0.0.0.0.

    Breaks when the SDK serves another application than `kserve.model_server.app`, or its
    `RESTServer` does not complete it without serving it.
    """
    app.router.routes[:0] = routes
    extension = ModelRepositoryExtension(model_registry=data_plane.model_registry)
    RESTServer("kserve.model_server:app", data_plane, extension, http_port=0).create_application()
    return app
