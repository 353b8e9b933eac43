"""What the commands share that serve archives without TorchServe."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hf_serve.handlers.errors import KitError
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.archives.model_store import list_archives
from hf_serve.scripts.archives.verification import unpack_signed
from hf_serve.scripts.command_line import split_names
from hf_serve.scripts.installation import command_line, install_line
from hf_serve.scripts.paths import BUILD, CONFIG, MODEL_STORE, shown
from hf_serve.scripts.serving.background import BackgroundServer
from hf_serve.scripts.serving.properties import default_ports

# The folder in a work folder with what was unpacked of signed archives.
SIGNED = "signed"
PORT = default_ports(CONFIG).inference

Models = Annotated[
    list[str] | None, typer.Option(help="Names, repeated or with commas; default: all.")
]
Port = Annotated[int, typer.Option(min=1, max=65535)]
ModelStore = Annotated[
    Path, typer.Option(help="The folder of archives.", show_default=shown(MODEL_STORE))
]
Timeout = Annotated[float, typer.Option(help="Seconds until every model must answer.")]
Workdir = Annotated[
    Path,
    typer.Option(
        help="Holds the server's state and log.", show_default=f"its folder in {shown(BUILD)}"
    ),
]

console = Console(highlight=False, soft_wrap=True)


def require_environment(package: str) -> None:
    """Check that this is the environment of a host, named after its package.

    Raises:
        KitError: the package is not installed.
    """
    # An import here would come before the variables that Ray reads when it is imported.
    if find_spec(package) is None:
        raise KitError(
            f"{package} is not installed in this environment; run `{install_line(package)}`."
        )


def find_archives(
    model_store: Path, models: list[str] | None, public_key: Path | None, workdir: Path
) -> list[Path]:
    """Return the archives of models, or of all, for a server that starts.

    Args:
        workdir: the work folder of the server, which gets what is unpacked of signed archives.

    Raises:
        KitError: there are none, a model has none, or one is not signed with the key.
    """
    found = list_archives(model_store, split_names(models))
    archives = [model_store.resolve() / file for file in found.values()]
    remove_signed(workdir)
    return unpack_all(archives, public_key, workdir) if public_key else archives


def unpack_all(archives: Sequence[Path], public_key: Path, workdir: Path) -> list[Path]:
    """Unpack archives that are signed into the work folder of a server, and return the folders.

    Archives that are served already keep their folders.

    Raises:
        KitError: one is not signed with the key.
    """
    folder = workdir.resolve() / SIGNED
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        return [
            unpack_signed(path, own / path.name.removesuffix(".mar"), public_key)
            for path in archives
        ]
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        raise


def remove_signed(workdir: Path) -> None:
    """Remove what was unpacked of signed archives, once no server runs in a work folder."""
    shutil.rmtree(workdir / SIGNED, ignore_errors=True)


def body_limits() -> BodyLimits:
    """Return the limits of bodies that config.properties has."""
    return BodyLimits.from_properties(CONFIG.read_text(encoding="utf-8"), os.environ)


def announce(server: BackgroundServer) -> None:
    """Say where a server that was started answers."""
    console.print(f"Ask at {server.inference_url}/predictions/<model>")


def add_stop_and_status(app: typer.Typer, kind: type[BackgroundServer], default: Path) -> None:
    """Add `stop` and `status` of a server to its command line."""

    @app.command()
    @plain_errors()
    def stop(workdir: Workdir = default) -> None:
        """Stop the server and everything that it started; requests that it has are answered."""
        server = kind.of(workdir)
        alive = server is not None and server.is_alive()
        if server:
            server.stop()
        remove_signed(workdir)
        console.print(f"{kind.title} has stopped." if alive else f"{kind.title} was not running.")

    @app.command()
    @plain_errors()
    def status(workdir: Workdir = default) -> None:
        """Say which models answer; exit code 1 when not all of them do."""
        show_status(kind, workdir)


def leave_if_running(kind: type[BackgroundServer], workdir: Path) -> None:
    """Say which models of a server answer that runs already, and exit."""
    server = kind.of(workdir)
    if server and server.is_alive():
        stop = command_line(*kind.verbs, "stop")
        console.print(f"{kind.title} is running; `{stop}` ends it.")
        show_status(kind, workdir)


def show_status(kind: type[BackgroundServer], workdir: Path) -> None:
    """Say which models answer, and exit, with code 1 when not all of them do."""
    server = kind.running(workdir)
    ready_models = server.models()
    for name, ready in ready_models.items():
        console.print(f"{name} {'is ready' if ready else 'does not answer'}")
    console.print(f"{server.inference_url} (process {server.pid}, log in {server.log})")
    raise typer.Exit(0 if all(ready_models.values()) else 1)
