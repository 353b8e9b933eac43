"""A gRPC server for clients of Triton and KServe, which calls TorchServe.

It serves GRPCInferenceService of the proto package `inference`.

It runs with requirements/gateway.txt alone: the protobuf that ONNX needs is too new for its stubs.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Annotated

import typer

from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.installation import install_line


@plain_errors()
def main(
    target: Annotated[
        str, typer.Option(help="TorchServe's inference address.")
    ] = "http://127.0.0.1:8080",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8001,
    host: Annotated[
        str,
        typer.Option(help="Where to listen. For other machines, put a proxy with TLS in front."),
    ] = "127.0.0.1",
) -> None:
    """Serve gRPC clients until Ctrl-C, by calling TorchServe over HTTP."""
    try:
        from hf_serve.scripts.serving.grpc.gateway import serve  # noqa: PLC0415
    except ModuleNotFoundError as error:
        install = install_line("gateway", openvino=False)
        typer.echo(f"{error.name} is not installed; run `{install}`.", err=True)
        raise typer.Exit(1) from None
    try:
        asyncio.run(serve(target, f"{host}:{port}", lambda bound: _announce(host, bound, target)))
    except OSError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _announce(host: str, port: int, target: str) -> None:
    typer.echo(f"Ask at {host}:{port} (gRPC); it asks {target}. Ctrl-C ends it.")
    sys.stdout.flush()


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
