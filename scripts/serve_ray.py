"""Serve the archives of the model store with Ray Serve: `start`, `deploy`, `stop` and `status`.

It runs with requirements/ray.txt, in an environment of its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from handlers.errors import KitError
from handlers.http.limits import BodyLimits
from scripts.kit.command import plain_errors, split_names
from scripts.kit.model_store import list_archives
from scripts.kit.places import BUILD, MODEL_STORE, ROOT
from scripts.kit.ports import Ports
from scripts.kit.properties import read_properties
from scripts.kit.ray_server import RayServer, start_ray_server

CONFIG = ROOT / "config.properties"
PORT = Ports.of(read_properties(CONFIG)).inference
INSTALL = "pip install -r requirements/ray.txt && pip install --no-deps -e ."

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
console = Console(highlight=False, soft_wrap=True)

Workdir = Annotated[Path, typer.Option(help="Holds the server's state and log.")]
WORKDIR = BUILD / "ray_server"


@app.command()
def start(
    models: Annotated[
        list[str] | None, typer.Option(help="Names, repeated or with commas; default: all.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535)] = PORT,
    model_store: Annotated[Path, typer.Option(help="The folder of archives.")] = MODEL_STORE,
    object_store: Annotated[
        int, typer.Option(min=80, help="MB of shared memory for large bodies.")
    ] = 200,
    timeout: Annotated[float, typer.Option(help="Seconds until every model must answer.")] = 300,
    workdir: Workdir = WORKDIR,
) -> None:
    """Start Ray Serve on this machine and return once every model answers."""
    with plain_errors():
        _require_ray()
        if (server := RayServer.of(workdir)) and server.is_alive():
            console.print("Ray Serve is running; `python scripts/serve_ray.py stop` ends it.")
            status(workdir)
            return
        found = list_archives(model_store, split_names(models))
        limits = BodyLimits.from_properties(CONFIG.read_text(encoding="utf-8"), os.environ)
        with console.status("Starting Ray Serve and loading models"):
            server = start_ray_server(
                [model_store.resolve() / file for file in found.values()],
                workdir,
                port,
                limits,
                timeout=timeout,
                object_store_bytes=object_store << 20,
            )
        console.print(f"Ask at {server.inference_url}/predictions/<model>")


@app.command()
def deploy(
    archives: Annotated[list[Path], typer.Argument(help="Archives of models, new or served.")],
    workdir: Workdir = WORKDIR,
) -> None:
    """Load archives into the running server; one of a served model replaces it.

    The archive before it answers until the new one is loaded.
    """
    with plain_errors():
        _require_ray()
        server = _running(workdir)
        with console.status("Loading models"):
            _deploy(server, [path.resolve() for path in archives])
        console.print(f"Ask at {server.inference_url}/predictions/<model>")


@app.command()
def stop(workdir: Workdir = WORKDIR) -> None:
    """Stop the server and everything that it started."""
    server = RayServer.of(workdir)
    alive = server is not None and server.is_alive()
    if server:
        server.stop()
    console.print("Ray Serve has stopped." if alive else "Ray Serve was not running.")


@app.command()
def status(workdir: Workdir = WORKDIR) -> None:
    """Say which models answer; exit code 1 when not all of them do."""
    with plain_errors():
        server = _running(workdir)
        ready_models = server.models()
        for name, ready in ready_models.items():
            console.print(f"{name} {'is ready' if ready else 'does not answer'}")
        console.print(f"{server.inference_url} (process {server.pid}, logs in {server.scratch})")
        raise typer.Exit(0 if all(ready_models.values()) else 1)


def _deploy(server: RayServer, archives: list[Path]) -> None:
    from hosts.archives import ArchiveError  # noqa: PLC0415
    from hosts.ray_environment import connected  # noqa: PLC0415
    from hosts.ray_serve.local import LocalSettings, deploy  # noqa: PLC0415

    settings = LocalSettings.model_validate(server.settings)
    try:
        with connected(server.address):
            deploy(archives, settings)
    except (ArchiveError, RuntimeError) as error:
        raise KitError(str(error).strip().splitlines()[-1]) from None


def _running(workdir: Path) -> RayServer:
    server = RayServer.of(workdir)
    if server is None or not server.is_alive():
        raise KitError("Ray Serve is not running; `python scripts/serve_ray.py start` starts it.")
    return server


def _require_ray() -> None:
    try:
        import ray  # noqa: F401, PLC0415
    except ModuleNotFoundError:
        raise KitError(f"Ray is not installed in this environment; run {INSTALL}") from None


if __name__ == "__main__":
    app()
