"""Let gRPC clients of Triton and KServe ask TorchServe: package inference, GRPCInferenceService.

It needs only requirements-gateway.txt, in an environment of its own.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.kit.grpc_gateway import serve


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
    """Answer gRPC clients until Ctrl-C, by asking TorchServe over HTTP."""
    try:
        asyncio.run(serve(target, f"{host}:{port}", lambda bound: _announce(host, bound, target)))
    except OSError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _announce(host: str, port: int, target: str) -> None:
    typer.echo(f"Ask at {host}:{port} (gRPC); it asks {target}. Ctrl-C ends it.")
    sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
