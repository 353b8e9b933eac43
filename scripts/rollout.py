"""Roll out a new version of a served model: `to`, `back` and `status`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_serve.handlers.errors import KitError
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.paths import BUILD, CONFIG, MODEL_STORE
from hf_serve.scripts.serving.ports import HOST
from hf_serve.scripts.serving.properties import default_ports
from hf_serve.scripts.serving.rollout import Rollout
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.tokens import KEY_FILE, Tokens

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
PORTS = default_ports(CONFIG)
INFERENCE, MANAGEMENT = f"http://{HOST}:{PORTS.inference}", f"http://{HOST}:{PORTS.management}"
METRICS = f"http://{HOST}:{PORTS.metrics}/metrics"
Model = Annotated[str, typer.Argument(help="The name of the model.")]
Force = Annotated[bool, typer.Option("--force", help="Unload a version that clients may ask for.")]


@app.callback()
@plain_errors()
def server(
    context: typer.Context,
    model_store: Annotated[Path, typer.Option(help="Its model store.")] = MODEL_STORE,
    inference: Annotated[str, typer.Option(help="Its address.")] = INFERENCE,
    management: Annotated[str, typer.Option(help="Its address.")] = MANAGEMENT,
    metrics: Annotated[str, typer.Option(help="The address of its metrics.")] = METRICS,
    key_file: Annotated[
        Path | None, typer.Option(help="Its key_file.json; default: that of --workdir.")
    ] = None,
    workdir: Annotated[
        Path, typer.Option(help="The work folder that serve.py started it with.")
    ] = BUILD / "server",
) -> None:
    """Roll out a new version of a model, by default on the server of `scripts/serve.py`.

    With the server's --public-key, the version must be signed, too.
    """
    own = workdir / KEY_FILE
    tokens = Tokens(key_file or (own if own.is_file() else None), management)
    server = Server.of(workdir)
    is_own = server is not None and server.is_alive() and server.management_url == management
    context.obj = partial(
        Rollout,
        store=model_store,
        inference_url=inference,
        management_url=management,
        metrics_url=metrics,
        tokens=tokens,
        say=typer.echo,
        signed=server.signed_store(model_store) if server and is_own else None,
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
    context.obj(model).set_default(version)
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
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise KitError(f"{path} is not JSON ({error}); write one request to it.") from None


if __name__ == "__main__":
    app()
