"""The work folder of the server that a command is about, where no option names it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hf_serve.handlers.errors import KitError
from hf_serve.scripts.paths import BUILD, shown
from hf_serve.scripts.serving.background import ASGI_LOG, AsgiServer
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
    Where none runs, it is the folder with the newest log, or the folder of `run` if neither has
    one and `run` has packed something.

    Raises:
        SeveralServers: two servers run.
    """
    if named is not None:
        of_run, is_own = named / SERVER_FOLDER, (named / "logs").is_dir()
        is_run = of_run.is_dir() or (store_of_run(of_run) and not is_own)
        return of_run if is_run else named
    running = [folder for folder in (STARTED, RUN) if running_server(folder)]
    if len(running) > 1:
        raise SeveralServers(*running)
    return running[0] if running else max(STARTED, RUN, key=_last_use)


def store_of_run(workdir: Path) -> Path | None:
    """Return the model store of `run` that belongs to a work folder; None if there is none."""
    store = workdir.parent / STORE
    return store if workdir.name == SERVER_FOLDER and store.is_dir() else None


def workdir_option(workdir: Path) -> list[object]:
    """Return the option that names a work folder; empty for one that commands find.

    It is the option that `run` was given, where `run` has made the work folder.
    """
    if workdir in (STARTED, RUN):
        return []
    of_run = workdir.name == SERVER_FOLDER and workdir != Path(SERVER_FOLDER)
    return ["--folder", workdir.parent] if of_run else ["--workdir", workdir]


def running_server(workdir: Path) -> Server | AsgiServer | None:
    """Return the server that runs with a work folder; None if none does."""
    for server in (Server.of(workdir), AsgiServer.of(workdir)):
        if server and server.is_alive():
            return server
    return None


def log_of(workdir: Path) -> Path | None:
    """Return the log of the server of a work folder that runs, or ran last; None without one."""
    logs = [path for path in (workdir / "logs" / SERVER_LOG, workdir / ASGI_LOG) if path.is_file()]
    server = running_server(workdir)
    if isinstance(server, AsgiServer):
        return server.log
    return logs[0] if server and logs else max(logs, key=_changed_at, default=None)


def _last_use(workdir: Path) -> tuple[float, bool]:
    """Return when a work folder was logged to, and whether `run` has packed for it."""
    log = log_of(workdir)
    return _changed_at(log) if log else 0.0, store_of_run(workdir) is not None


def _changed_at(path: Path) -> float:
    return path.stat().st_mtime if path.is_file() else 0.0
