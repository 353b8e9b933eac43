"""The work folder of the server that a command is about, where no option names it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hf_serve.handlers.errors import KitError
from hf_serve.scripts.paths import BUILD, shown
from hf_serve.scripts.serving.logs import SERVER_LOG
from hf_serve.scripts.serving.server import Server

# The folder of `hf-serve run`, and the work folder of its server in it.
RUN_FOLDER, SERVER_FOLDER, STORE = Path("hf-serve"), "server", "model_store"
STARTED = BUILD / "server"
RUN = RUN_FOLDER / SERVER_FOLDER

Workdir = Annotated[
    Path | None,
    typer.Option(
        "--workdir",
        "--folder",
        help="Holds the server's settings and logs; or the --folder of `run`.",
        show_default=f"that of the server that runs: {shown(STARTED)} or {shown(RUN)}",
    ),
]


class SeveralServers(KitError):
    """Two servers run, and a command names neither."""

    def __init__(self, first: Path, second: Path) -> None:
        super().__init__(
            f"Servers with the work folders {first} and {second} run; name one with --workdir."
        )


def find_workdir(named: Path | None) -> Path:
    """Return the work folder that a command names, or else that of the server of this folder.

    The folder that `run` was given has the work folder in it.

    Without a name, it is the folder of the server that runs, whether `start` or `run` started it.
    Where none runs, it is the folder with the newest log.

    Raises:
        SeveralServers: two servers run.
    """
    if named is not None:
        of_run = named / SERVER_FOLDER
        return of_run if of_run.is_dir() else named
    running = [folder for folder in (STARTED, RUN) if _runs(folder)]
    if len(running) > 1:
        raise SeveralServers(*running)
    return running[0] if running else max(STARTED, RUN, key=_logged_at)


def store_of_run(workdir: Path) -> Path | None:
    """Return the model store of `run` that belongs to a work folder; None if there is none."""
    store = workdir.parent / STORE
    return store if workdir.name == SERVER_FOLDER and store.is_dir() else None


def workdir_option(workdir: Path) -> list[object]:
    """Return the option that names a work folder; empty for one that commands find."""
    return [] if workdir in (STARTED, RUN) else ["--workdir", workdir]


def _runs(workdir: Path) -> bool:
    server = Server.of(workdir)
    return server is not None and server.is_alive()


def _logged_at(workdir: Path) -> float:
    log = workdir / "logs" / SERVER_LOG
    return log.stat().st_mtime if log.is_file() else 0.0
