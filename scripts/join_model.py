"""Compute a part of a model that TorchServe serves on another machine.

The YAML of the archive has `parallelType: tp` and a `torchrun:` section with `nnodes`. Run this on
each machine but TorchServe's, with the same archive.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hf_serve.handlers.config.model_config import ModelConfig, Torchrun
from hf_serve.handlers.errors import KitError
from hf_serve.hosts.archives import config_file, open_archive
from hf_serve.hosts.command_line import plain_errors

PAUSE_SECONDS = 2.0
# TorchServe's `initial_distribution_port`: the number of its first worker with torchrun.
FIRST_WORKER = 29500


@plain_errors()
def main(
    archive: Annotated[Path, typer.Argument(help="The archive, or a folder with its files.")],
    node_rank: Annotated[int, typer.Option(help="The number of this machine.")] = 1,
    rdzv_id: Annotated[
        str | None,
        typer.Option(
            help="What TorchServe calls the worker, as the line `run_id` of its model_log.log says;"
            f" by default <model>_{FIRST_WORKER}, its first one with torchrun."
        ),
    ] = None,
) -> None:
    """Compute this machine's part, and join again when TorchServe's worker was restarted."""
    opened = open_archive(archive)
    torchrun = ModelConfig.read(config_file(opened.folder)).torchrun
    if torchrun is None or torchrun.nnodes == 1:
        raise KitError(
            f"{archive} is a model of one machine: its YAML has no torchrun.nnodes above 1; set"
            " it, with rdzv-backend: static and rdzv-endpoint, and pack the archive again."
        )
    if not 0 < node_rank < torchrun.nnodes:
        raise KitError(
            f"--node-rank is {node_rank}, and torchrun.nnodes is {torchrun.nnodes}; TorchServe's"
            f" machine is 0, the others are 1 to {torchrun.nnodes - 1}."
        )
    run_id = rdzv_id or f"{opened.name}_{FIRST_WORKER}"
    command = torchrun_command(torchrun, node_rank, run_id, opened.folder)
    try:
        while True:
            subprocess.run(command, check=False)
            time.sleep(PAUSE_SECONDS)
    except KeyboardInterrupt:
        typer.echo("Left the model.", err=True)


def torchrun_command(torchrun: Torchrun, node_rank: int, run_id: str, folder: Path) -> list[str]:
    """Return the command that starts the processes of one machine."""
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(torchrun.nnodes)),
        *("--nproc-per-node", str(torchrun.nproc_per_node)),
        *("--node-rank", str(node_rank)),
        *("--rdzv-backend", str(torchrun.rdzv_backend)),
        *("--rdzv-endpoint", str(torchrun.rdzv_endpoint)),
        *("--rdzv-id", run_id),
        *("--max-restarts", "0"),
        *("-m", "hf_serve.hosts.torchrun.follow", str(folder)),
    ]


run = partial(typer.run, main)

if __name__ == "__main__":
    run()
