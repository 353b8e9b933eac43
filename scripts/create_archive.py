"""Pack each model that a YAML describes into one self-contained archive for TorchServe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from hf_serve.handlers.checkpoints.unread_files import describe_unread_of, unread_files
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import KitError
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.archives.archive_formats import FormatName
from hf_serve.scripts.archives.contents import requirements_of
from hf_serve.scripts.archives.load_check import share_imports
from hf_serve.scripts.archives.packing import Archive, pack
from hf_serve.scripts.archives.sbom import write_sbom
from hf_serve.scripts.archives.serving_defaults import describe_keys
from hf_serve.scripts.command_line import split_names
from hf_serve.scripts.paths import MODEL_STORE, checkpoint_of, config_paths, model_name, shown
from hf_serve.scripts.serving.openmp import short_spins

out, err = (Console(stderr=each, highlight=False, soft_wrap=True) for each in (False, True))


@plain_errors()
def main(
    configs: Annotated[
        list[Path] | None, typer.Argument(help="YAML files; default: those of the most used modes.")
    ] = None,
    archive_format: Annotated[
        FormatName, typer.Option("--format", help="The archive's format.")
    ] = "mar",
    export_path: Annotated[
        Path, typer.Option(help="Where archives are put.", show_default=shown(MODEL_STORE))
    ] = MODEL_STORE,
    version: Annotated[str, typer.Option(help="The model's version.")] = "1.0",
    versioned: Annotated[
        bool, typer.Option("--versioned", help="Name archives NAME@VERSION, for rollouts.")
    ] = False,
    sign: Annotated[
        Path | None, typer.Option(help="An Ed25519 key in a PEM file that signs the archives.")
    ] = None,
    sbom: Annotated[
        bool, typer.Option("--sbom", help="Write NAME.cdx.json, a CycloneDX SBOM, beside each.")
    ] = False,
    extra_files: Annotated[
        list[str] | None, typer.Option(help="More files or folders, repeated or with commas.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Pack and check again even what has not changed.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Load each in a bare interpreter.")
    ] = True,
) -> None:
    """Pack each YAML's model, handler and settings into one archive named after the YAML.

    An older archive is replaced once the new one has been loaded; one that would not change stays.
    """
    make = partial(
        pack,
        archive_format=archive_format,
        export_path=export_path,
        version=version,
        versioned=versioned,
        signing_key=sign,
        extra_files=[Path(name) for name in split_names(extra_files)],
        force=force,
        checked=check,
    )
    paths = list(config_paths(configs))
    with short_spins(), share_imports() if len(paths) > 1 else nullcontext() as shared_imports:
        failed = _pack_all(paths, partial(make, shared_imports=shared_imports), sbom=sbom)
    if failed:
        err.print(f"Not packed: {', '.join(failed)}", markup=False)
        raise typer.Exit(1)


def _pack_all(paths: Iterable[Path], make: partial[Archive], *, sbom: bool) -> list[str]:
    """Pack each YAML's model, print each, and return the names of those that failed."""
    table = Table("name", "size", "seconds", Column("where", overflow="fold"), "", box=None)
    failed = []
    for path in paths:
        try:
            archive = _shown(path, make)
            table.add_row(*_row(archive))
            if sbom:
                out.print(f"{archive.name}: {write_sbom(archive.path)}", markup=False)
            if archive.added:
                out.print(f"{archive.name}: {describe_keys(archive.added)}", markup=False)
            if archive.choice:
                out.print(f"{archive.name}: {archive.choice}", markup=False)
            if archive.quality:
                out.print(f"{archive.name} {archive.quality}", markup=False)
            if archive.calibration:
                out.print(f"{archive.name} {archive.calibration}", markup=False)
            for warning in _warnings(path):
                err.print(f"{archive.name}: {warning}", markup=False)
        except KitError as error:
            err.print(f"{model_name(path)}: {error}", markup=False)
            failed.append(model_name(path))
    if table.row_count:
        out.print(table, soft_wrap=False)
    return failed


def _shown(path: Path, make: partial[Archive]) -> Archive:
    """Pack one model with a progress bar, which moves to and fro until bytes are written."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task(f"exporting and measuring {model_name(path)}", total=None)

        def advance(done: int, total: int) -> None:
            step = "checking" if done == total else "packing"
            description = f"{step} {model_name(path)}"
            progress.update(task, completed=done, total=total, description=description)

        return make(path, on_progress=advance)


def _warnings(path: Path) -> Iterator[str]:
    """Yield what an archive has not of a checkpoint and of a YAML's folder."""
    config = ModelConfig.read(path)
    if left_out := describe_unread_of(checkpoint_of(path, config), config.handler, unread_files):
        yield left_out
    if requirements := requirements_of(path):
        yield _not_installed(requirements)


def _not_installed(requirements: Path) -> str:
    return (
        f"the packages of {requirements} are not installed by themselves; run `pip install -r"
        f" {requirements}` in the environment of the workers."
    )


def _row(archive: Archive) -> tuple[str, ...]:
    note = "" if archive.made else "unchanged"
    seconds = f"{archive.seconds:.1f}"
    return archive.name, decimal(archive.size), seconds, str(archive.path), note


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
