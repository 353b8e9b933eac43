"""Serve the demo models, made and packed where they are missing: `make serve` in one process."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts import create_archive, make_demo_models, serve
from hf_serve.scripts.default_modes import default_modes
from hf_serve.scripts.paths import config_path_of


@plain_errors()
def main(
    modes: Annotated[
        list[str] | None, typer.Argument(help="Modes; default: the most used ones.")
    ] = None,
    url_port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="The port of one URL for all models and protocols; 0: none."
        ),
    ] = 0,
) -> None:
    """Make the demo models, pack them, and start TorchServe with them."""
    named = modes or default_modes()
    make_demo_models.main(named)
    create_archive.main([config_path_of(mode) for mode in named])
    serve.start(models=named, url_port=url_port)


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
