"""Download the models that YAML files name; what is here already is left as it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from huggingface_hub.utils.tqdm import disable_progress_bars
from rich.console import Console
from rich.table import Column, Table

from hf_serve.handlers.checkpoints.unread_files import describe_unread
from hf_serve.handlers.config.handler_section import AUTO, HandlerSection
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import KitError
from hf_serve.handlers.formats import check_config, choose
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.hub.download import bring_adapters, check_folder, download, find_downloaded
from hf_serve.scripts.paths import WORKSPACE, assistant_of, checkpoint_of, config_paths, model_name

INTERRUPTED = 130
out, err = Console(highlight=False), Console(stderr=True, highlight=False, soft_wrap=True)


@plain_errors()
def main(
    configs: Annotated[
        list[Path] | None, typer.Argument(help="YAML files; default: those of the most used modes.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Look at the hub again even where all is here.")
    ] = False,
) -> None:
    """Download the models that YAML files name to artifacts/models/<YAML's name>/.

    A download that was stopped goes on where it was.

    HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are read from the environment.
    """
    if not sys.stderr.isatty() and "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ:
        disable_progress_bars()
    table = Table("name", "commit", "files", "size", Column("where", overflow="fold"), box=None)
    failures: dict[str, list[str]] = {}
    for path in config_paths(configs):
        try:
            for row in bring(path, Hub(), force=force):
                table.add_row(*row)
        except KitError as error:
            typer.echo(f"{model_name(path)}: failed")
            failures.setdefault(str(error), []).append(model_name(path))
        except KeyboardInterrupt:
            err.print("Stopped; run the command again and it goes on from here.")
            raise typer.Exit(INTERRUPTED) from None
    finish(table, failures)


def bring(config_path: Path, hub: Hub, *, force: bool) -> Iterator[tuple[str, ...]]:
    """Download, check or find the checkpoints of one YAML; yields their rows of the summary.

    Raises:
        KitError: when one cannot be had or does not fit.
    """
    config, name = ModelConfig.read(config_path), model_name(config_path)
    check_config(config)
    if config.handler.save_mode == AUTO:
        typer.echo(f"{name}: {choose(config)}")
    yield _bring(name, config.handler, checkpoint_of(config_path, config), hub, force=force)
    if assistant := config.handler.assistant:
        target = assistant_of(config_path, assistant)
        yield _bring(f"{name} (assistant_model)", assistant, target, hub, force=force)


def _bring(
    name: str, handler: HandlerSection, target: Path, hub: Hub, *, force: bool
) -> tuple[str, ...]:
    """Download, check or find one checkpoint; returns its row of the summary."""
    commit, size, files = _bring_checkpoint(name, handler, target, hub, force=force)
    sizes = [path.stat().st_size for path in bring_adapters(handler, target, hub, force=force)]
    return name, commit, str(files + len(sizes)), megabytes(size + sum(sizes)), shown(target)


def _bring_checkpoint(
    name: str, handler: HandlerSection, target: Path, hub: Hub, *, force: bool
) -> tuple[str, int, int]:
    """Return the commit, the size and the number of files of a checkpoint."""
    if target.is_dir() and Path(handler.model_name or target) == target:
        typer.echo(f"{name}: checking the folder {target}")
        return "-", *check_folder(handler, target)
    source = None if force else find_downloaded(handler, target)
    if source:
        typer.echo(f"{name}: {source.model_name} is here already")
    else:
        typer.echo(f"{name}: {handler.model_name} from {hub.endpoint}")
        source = download(handler, target, hub, force=force)
    if left_out := describe_unread(source.left_out):
        typer.echo(f"{name}: {left_out}")
    return source.commit[:7], source.size, len(source.files)


def finish(table: Table, failures: dict[str, list[str]]) -> None:
    """Print what is here and what went wrong; a failure ends the command with exit code 1."""
    if table.row_count:
        out.print(table)
    for sentence, names in failures.items():
        err.print(f"{', '.join(names)}: {sentence}", markup=False)
    if failures:
        raise typer.Exit(1)


def shown(folder: Path) -> str:
    """Write a folder's path, short where it is in the folder of the commands."""
    return str(folder.relative_to(WORKSPACE) if folder.is_relative_to(WORKSPACE) else folder)


def megabytes(size: int) -> str:
    """Write a number of bytes for people."""
    return f"{size / 1e6:,.1f} MB"


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
