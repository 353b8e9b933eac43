"""Serve archives as KServe's container does: `python -m hf_serve.hosts.kserve /mnt/models`.

It is :mod:`hf_serve.hosts.asgi` with the options of KServe's containers. Another container serves
gRPC: `hf-serve-gateway --port 8081`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hf_serve.hosts.asgi import __main__ as asgi
from hf_serve.hosts.defaults import MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES


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
    """Serve archives with the paths of KServe and of every other protocol."""
    asgi.main(
        archives,
        model_name=model_name,
        host=host,
        port=http_port,
        grace_period=grace_period,
        max_request_size=max_request_size,
        max_response_size=max_response_size,
    )


if __name__ == "__main__":
    typer.run(main)
