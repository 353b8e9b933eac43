"""Serve the archives of the model store with Ray Serve: `start`, `deploy`, `stop` and `status`.

It runs with requirements/ray.txt, in a separate environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hf_serve.handlers.errors import KitError
from hf_serve.hosts.command_line import plain_errors
from hf_serve.hosts.tracebacks import last_line
from hf_serve.scripts.command_line import PublicKey
from hf_serve.scripts.paths import BUILD, MODEL_STORE
from hf_serve.scripts.serving.background import RayServer, start_ray_server
from hf_serve.scripts.serving.host_commands import (
    PORT,
    Models,
    ModelStore,
    Port,
    Timeout,
    Workdir,
    add_stop_and_status,
    announce,
    body_limits,
    console,
    find_archives,
    leave_if_running,
    require_environment,
    unpack_all,
)

WORKDIR = BUILD / "ray_server"

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@app.command()
@plain_errors()
def start(
    models: Models = None,
    port: Port = PORT,
    model_store: ModelStore = MODEL_STORE,
    public_key: PublicKey = None,
    object_store: Annotated[
        int, typer.Option(min=80, help="MB of shared memory for large bodies.")
    ] = 200,
    timeout: Timeout = 300,
    workdir: Workdir = WORKDIR,
) -> None:
    """Start Ray Serve on this machine and return once every model answers."""
    require_environment("ray")
    leave_if_running(RayServer, workdir)
    archives = find_archives(model_store, models, public_key, workdir)
    with console.status("Starting Ray Serve and loading models"):
        server = start_ray_server(
            archives,
            workdir,
            port,
            body_limits(),
            public_key=public_key,
            timeout=timeout,
            object_store_bytes=object_store << 20,
        )
    announce(server)


@app.command()
@plain_errors()
def deploy(
    archives: Annotated[list[Path], typer.Argument(help="Archives of models, new or served.")],
    workdir: Workdir = WORKDIR,
) -> None:
    """Load archives into the running server; one of a served model replaces it.

    The archive before it answers until the new one is loaded. With the server's --public-key, they
    must be signed, too.
    """
    require_environment("ray")
    server = RayServer.running(workdir)
    with console.status("Loading models"):
        _deploy(server, [path.resolve() for path in archives])
    announce(server)


add_stop_and_status(app, RayServer, WORKDIR)


def _deploy(server: RayServer, archives: list[Path]) -> None:
    from hf_serve.hosts.archives import ArchiveError  # noqa: PLC0415
    from hf_serve.hosts.ray_environment import connected  # noqa: PLC0415
    from hf_serve.hosts.ray_serve.local import LocalSettings, deploy  # noqa: PLC0415

    settings = LocalSettings.model_validate(server.settings)
    if settings.public_key:
        archives = unpack_all(archives, settings.public_key, server.workdir)
    try:
        with connected(server.address):
            deploy(archives, settings)
    except (ArchiveError, ConnectionError, RuntimeError) as error:
        raise KitError(last_line(str(error))) from None


if __name__ == "__main__":
    app()
