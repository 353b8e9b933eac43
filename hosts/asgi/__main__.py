"""Serve all models at one URL: `python -m hf_serve.hosts.asgi`.

Without archives it is in front of a running TorchServe; with archives, it loads them itself.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any

import typer

from hf_serve.hosts.archives import Archive
from hf_serve.hosts.asgi.pool_limits import (
    LOAD_SECONDS,
    KeepAlive,
    LoadTimeout,
    ModelsMax,
    ModelsMemory,
    Pin,
    PoolLimits,
)
from hf_serve.hosts.asgi.served_files import ServedFiles
from hf_serve.hosts.command_line import plain_errors
from hf_serve.hosts.defaults import LOG_FORMAT, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES

KEYS_VARIABLE = "HF_SERVE_API_KEYS"


@plain_errors()
def main(
    archives: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Archives, or folders of archives or YAMLs, to load without TorchServe."
        ),
    ] = None,
    model_name: Annotated[
        str, typer.Option(help="The name of the only archive; default: that in its manifest.")
    ] = "",
    host: Annotated[str, typer.Option(help="The address to bind to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    inference: Annotated[
        str, typer.Option(help="TorchServe's inference address.")
    ] = "http://127.0.0.1:8080",
    management: Annotated[
        str, typer.Option(help="TorchServe's management address.")
    ] = "http://127.0.0.1:8081",
    metrics: Annotated[
        str, typer.Option(help="The address of TorchServe's metrics; empty for none.")
    ] = "http://127.0.0.1:8082/metrics",
    workdir: Annotated[
        Path | None, typer.Option(help="The work folder of serve.py, for the errors of models.")
    ] = None,
    watch: Annotated[
        Path | None,
        typer.Option(help="TorchServe's model store, whose archives are registered as they come."),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help=f"A file with one API key in a line. {KEYS_VARIABLE} has further ones."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="An origin of web pages that may read responses, repeated; * for any."),
    ] = None,
    predict_route: Annotated[
        list[str] | None,
        typer.Option(help="A further path of predictions by the only model, repeated."),
    ] = None,
    health_route: Annotated[
        list[str] | None,
        typer.Option(help="A further path that tells whether the models answer, repeated."),
    ] = None,
    models_max: ModelsMax = None,
    models_memory: ModelsMemory = None,
    keep_alive: KeepAlive = None,
    load_timeout: LoadTimeout = LOAD_SECONDS,
    pin: Pin = None,
    grace_period: Annotated[
        int, typer.Option(min=0, help="Seconds for running requests after SIGTERM.")
    ] = 60,
    max_request_size: Annotated[int, typer.Option(min=1, help="Bytes.")] = MAX_REQUEST_BYTES,
    max_response_size: Annotated[int, typer.Option(min=1, help="Bytes.")] = MAX_RESPONSE_BYTES,
    log_file: Annotated[
        Path | None, typer.Option(help="A file that the log is written to as well.")
    ] = None,
    greeting: Annotated[str, typer.Option(help="What is printed once it answers.")] = "",
) -> None:
    """Serve all models at one URL, in front of TorchServe or without it."""
    if log_file:
        sys.stderr = _Copied(sys.stderr, log_file)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    environment = dict(os.environ)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    on_demand = PoolLimits.of_options(models_max, models_memory, keep_alive, load_timeout, pin)
    files = ServedFiles(archives, model_name, environment) if archives else None
    first = files.import_code() if files and not on_demand else None
    # These import `handlers`, which is that of the archives now.
    from hf_serve.hosts.asgi.access import read_keys  # noqa: PLC0415
    from hf_serve.hosts.asgi.server import ServerSettings, serve  # noqa: PLC0415

    settings = ServerSettings(
        host,
        port,
        grace_period,
        max_request_size,
        read_keys(api_key_file, os.environ.pop(KEYS_VARIABLE, "")),
        allow_origin or (),
        predict_route or (),
        health_route or (),
        greeting=greeting,
    )
    if files and on_demand:
        backend = _on_demand(files, on_demand, max_request_size, max_response_size)
    elif files and first:
        backend = _in_process(files, first, max_request_size, max_response_size)
    else:
        at = inference.rstrip("/"), management.rstrip("/"), metrics, workdir
        backend = _torchserve(at, watch, on_demand)
    serve(backend, settings)


class _Copied(io.TextIOBase):
    """Standard error, which a file has as well, from its beginning."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream = stream
        self._file = path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)

    def write(self, text: str) -> int:
        """Write a text to both; a file on a full disk lacks it."""
        with suppress(OSError):
            self._file.write(text)
        return int(self._stream.write(text))

    def flush(self) -> None:
        """Flush standard error; the file is written line by line."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the descriptor of standard error."""
        return int(self._stream.fileno())

    def isatty(self) -> bool:
        """Return whether standard error is a terminal."""
        return bool(self._stream.isatty())


def _in_process(files: ServedFiles, first: Archive, request: int, response: int) -> Any:
    from hf_serve.handlers.http.limits import BodyLimits  # noqa: PLC0415
    from hf_serve.hosts.archive_handlers import set_num_threads  # noqa: PLC0415
    from hf_serve.hosts.asgi.in_process import InProcessBackend  # noqa: PLC0415

    set_num_threads(workers=1)
    backend = InProcessBackend(files, first, BodyLimits(request, response))
    backend.load_all()
    return backend


def _on_demand(files: ServedFiles, limits: PoolLimits, request: int, response: int) -> Any:
    from hf_serve.handlers.checkpoints.archive_signature import KNOWN_SUMS  # noqa: PLC0415
    from hf_serve.handlers.config.model_config import WARM_UP  # noqa: PLC0415
    from hf_serve.handlers.http.limits import BodyLimits  # noqa: PLC0415
    from hf_serve.hosts.asgi.on_demand import ModelProcesses, OnDemandBackend  # noqa: PLC0415
    from hf_serve.hosts.fork_server import start as fork_server  # noqa: PLC0415

    folder, python = Path(mkdtemp(prefix="models-")), Path(sys.executable)
    # A request waits for each load. The fork server has the same environment as its forks.
    os.environ.setdefault(WARM_UP, "off")
    os.environ.setdefault(KNOWN_SUMS, str(folder))
    if fork_server.is_on():
        modules = fork_server.MODULES + fork_server.SERVER_MODULES
        server = fork_server.ForkServer(folder, folder / fork_server.LOG_FILE, modules)
        if server.write_launcher():
            server.start()
            python = server.python
    processes = ModelProcesses(
        files, python, folder, limits.models_max or sys.maxsize, BodyLimits(request, response)
    )
    backend = OnDemandBackend(files, processes, limits)
    backend.read_all()
    return backend


def _torchserve(
    at: tuple[str, str, str, Path | None], watch: Path | None, limits: PoolLimits | None
) -> Any:
    from hf_serve.hosts.asgi.torchserve import Addresses, TorchServeBackend  # noqa: PLC0415

    return TorchServeBackend(Addresses(*at), watched=watch, limits=limits)


if __name__ == "__main__":
    typer.run(main)
