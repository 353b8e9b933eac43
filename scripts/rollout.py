"""Roll out a new version of a served model: `to`, `back`, `retire` and `status`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_serve.handlers.config.documents import read_json
from hf_serve.handlers.errors import KitError
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.paths import CONFIG, MODEL_STORE
from hf_serve.scripts.serving.ports import HOST
from hf_serve.scripts.serving.properties import default_ports
from hf_serve.scripts.serving.rollout import Rollout
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.tokens import KEY_FILE, Tokens
from hf_serve.scripts.serving.workdirs import Workdir, find_workdir

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
OF_SERVER = "that of the server"
Model = Annotated[str, typer.Argument(help="The name of the model.")]
Force = Annotated[bool, typer.Option("--force", help="Unload a version that clients may ask for.")]


@app.callback()
@plain_errors()
def server(
    context: typer.Context,
    model_store: Annotated[
        Path | None, typer.Option(help="Its model store.", show_default=OF_SERVER)
    ] = None,
    inference: Annotated[
        str | None, typer.Option(help="Its address.", show_default=OF_SERVER)
    ] = None,
    management: Annotated[
        str | None, typer.Option(help="Its address.", show_default=OF_SERVER)
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="The address of its metrics.", show_default=OF_SERVER)
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="Its key_file.json; default: that of --workdir.")
    ] = None,
    workdir: Workdir = None,
) -> None:
    """Roll out a new version of a model, by default on the server that runs here.

    With the server's --public-key, the version must be signed, too.
    """
    workdir = find_workdir(workdir)
    running = Server.of(workdir)
    server = running if running and running.is_alive() else None
    ports = server.ports if server else default_ports(CONFIG)
    management = management or f"http://{HOST}:{ports.management}"
    is_own = server is not None and server.management_url == management
    store = model_store or (server and server.model_store) or MODEL_STORE
    own = workdir / KEY_FILE
    context.obj = partial(
        Rollout,
        store=store,
        inference_url=inference or f"http://{HOST}:{ports.inference}",
        management_url=management,
        metrics_url=metrics or f"http://{HOST}:{ports.metrics}/metrics",
        tokens=Tokens(key_file or (own if own.is_file() else None), management),
        say=typer.echo,
        signed=server.signed_store(store) if server and is_own else None,
    )


@app.command()
@plain_errors()
def to(
    context: typer.Context,
    model: Model,
    version: Annotated[str, typer.Argument(help="The new version, of MODEL@VERSION.mar.")],
    sample: Annotated[
        Path | None, typer.Option(help="A JSON file with a request; default: that of the mode.")
    ] = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests before the switch.")] = 20,
    watch: Annotated[float, typer.Option(min=0, help="Seconds to watch after it.")] = 10,
    retire: Annotated[
        bool, typer.Option("--retire", help="Unload the former default, unless clients ask for it.")
    ] = False,
    force: Force = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
) -> None:
    """Load a version, try it, make it the default, and go back to the former one if it fails."""
    context.obj(model).to(
        version,
        sample=_read(sample),
        requests=requests,
        watch=watch,
        retire=retire,
        force=force,
        dry_run=dry_run,
    )
    if not dry_run:
        typer.echo(f"{model} {version} is the default.")


@app.command()
@plain_errors()
def back(
    context: typer.Context,
    model: Model,
    version: Annotated[str, typer.Argument(help="A version that is loaded.")],
) -> None:
    """Make a version that is loaded the default at once, without trying it."""
    context.obj(model).back(version)
    typer.echo(f"{model} {version} is the default.")


@app.command()
@plain_errors()
def retire(
    context: typer.Context,
    model: Model,
    version: Annotated[str, typer.Argument(help="A version that is loaded.")],
    watch: Annotated[float, typer.Option(min=0, help="Seconds to count its requests.")] = 10,
    force: Force = False,
) -> None:
    """Unload a version that is not the default, unless clients ask for it by its number."""
    context.obj(model).retire(version, watch, force=force)
    typer.echo(f"{model} {version} is unloaded.")


@app.command()
@plain_errors()
def status(context: typer.Context, model: Model) -> None:
    """Say which versions are loaded, and which one is the default."""
    rollout: Rollout = context.obj(model)
    default = rollout.default()["modelVersion"]
    for version in rollout.versions():
        typer.echo(f"{model} {version}{' (default)' if version == default else ''}")


def _read(path: Path | None) -> Any:
    if path is None:
        return None
    try:
        return read_json(path)
    except ValueError as error:
        raise KitError(f"{path} is not JSON ({error}); write one request to it.") from None


if __name__ == "__main__":
    app()
