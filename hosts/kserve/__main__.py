"""Serve archives behind KServe's Python SDK: `python -m hosts.kserve ARCHIVE…`.

It runs with requirements/kserve.txt, in a separate environment.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from hosts.archives import import_from, open_archives
from hosts.command_line import plain_errors
from hosts.defaults import MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES


@plain_errors()
def main(
    archives: Annotated[
        list[Path], typer.Argument(help="Archives, or folders of archives such as /mnt/models.")
    ],
    model_name: Annotated[
        str, typer.Option(help="The name of the model; default: that of its archive.")
    ] = "",
    host: Annotated[str, typer.Option(help="The address to bind to.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(min=1, max=65535)] = 8080,
    grace_period: Annotated[
        int, typer.Option(min=0, help="Seconds for running requests after SIGTERM.")
    ] = 60,
    max_request_size: Annotated[int, typer.Option(min=1, help="Bytes.")] = MAX_REQUEST_BYTES,
    max_response_size: Annotated[int, typer.Option(min=1, help="Bytes.")] = MAX_RESPONSE_BYTES,
) -> None:
    """Serve archives behind KServe's Python SDK, with the routes of KServe and of TorchServe."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    # The SDK logs the times of each request there.
    logging.getLogger("kserve.trace").setLevel(logging.WARNING)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    opened = open_archives(archives, model_name)
    import_from(opened[0][1].folder)
    # The SDK reads the arguments of the command line when it is imported.
    del sys.argv[1:]
    # Imports the archive's own `handlers`.
    from handlers.http.limits import BodyLimits  # noqa: PLC0415
    from hosts.kserve.server import Settings, serve  # noqa: PLC0415

    limits = BodyLimits(max_request_size, max_response_size)
    serve(opened, Settings(host, http_port, grace_period, limits))


if __name__ == "__main__":
    typer.run(main)
