"""Serve the archives of the model store as KServe's containers do: `start`, `stop` and `status`."""

from __future__ import annotations

import typer

from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.command_line import PublicKey
from hf_serve.scripts.paths import BUILD, MODEL_STORE
from hf_serve.scripts.serving.background import KServeServer, start_kserve_server
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
)

WORKDIR = BUILD / "kserve_server"

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@app.command()
@plain_errors()
def start(
    models: Models = None,
    port: Port = PORT,
    model_store: ModelStore = MODEL_STORE,
    public_key: PublicKey = None,
    timeout: Timeout = 300,
    workdir: Workdir = WORKDIR,
) -> None:
    """Start the server on this machine and return once every model answers."""
    leave_if_running(KServeServer, workdir)
    archives = find_archives(model_store, models, public_key, workdir)
    with console.status("Starting the server and loading models"):
        server = start_kserve_server(archives, workdir, port, body_limits(), timeout=timeout)
    announce(server)


add_stop_and_status(app, KServeServer, WORKDIR)


if __name__ == "__main__":
    app()
