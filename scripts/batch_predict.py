"""Predict every row of files with an archive, on this machine or on a cluster of Ray.

It runs with requirements/ray.txt, in a separate environment. Run again, it does what is missing.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hf_serve.handlers.errors import KitError
from hf_serve.handlers.process.resources import available_cores
from hf_serve.hosts.command_line import plain_errors
from hf_serve.hosts.ray_environment import import_ray
from hf_serve.hosts.tracebacks import last_line
from hf_serve.scripts.archives.verification import signed_digest
from hf_serve.scripts.serving.host_commands import require_environment

if TYPE_CHECKING:
    from hf_serve.hosts.ray_data.job import Actors, Planned

console = Console(highlight=False, soft_wrap=True)
OBJECT_STORE_BYTES = 200 << 20


@plain_errors()
def main(
    archive: Annotated[Path, typer.Argument(help="The .mar.", metavar="MODEL.mar")],
    source: Annotated[
        Path,
        typer.Argument(help="Parquet, CSV or JSON lines, or a folder of them.", metavar="INPUT"),
    ],
    output: Annotated[Path, typer.Argument(help="The folder of results.", metavar="OUTPUT")],
    column: Annotated[str, typer.Option(help="The column of the inputs.")] = "inputs",
    output_format: Annotated[
        Literal["jsonl", "parquet"] | None,
        typer.Option("--format", help="By default parquet for Parquet, else jsonl."),
    ] = None,
    parameters: Annotated[str, typer.Option(help="JSON, the same for every row.")] = "{}",
    chunk_rows: Annotated[
        int, typer.Option(min=1, help="Rows of each file of results, predicted together.")
    ] = 1000,
    address: Annotated[
        str | None, typer.Option(help="A cluster of Ray; by default, this machine alone.")
    ] = None,
    actors: Annotated[
        int | None, typer.Option(min=1, help="Processes with the model; default: one a node.")
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(min=1, help="Cores of each; default: all of its node.")
    ] = None,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs of each.")] = 0.0,
    public_key: Annotated[
        Path | None, typer.Option(help="Use the archive only if it is signed with this key.")
    ] = None,
) -> None:
    """Predict the rows of files with Ray; each has its columns, and `result` or `error`."""
    require_environment("ray")
    sha256 = signed_digest(archive, public_key) if public_key else None
    ray = import_ray(local=address is None)
    from hf_serve.hosts.ray_data.job import Actors, plan_job  # noqa: PLC0415

    planned = plan_job(
        archive,
        source,
        output,
        column=column,
        output_format=output_format,
        parameters=_parsed(parameters),
        chunk_rows=chunk_rows,
        sha256=sha256,
    )
    start = time.monotonic()
    errors = planned.errors + _predict_missing(ray, planned, address, Actors(actors, cpus, gpus))
    seconds = time.monotonic() - start
    console.print(
        f"{planned.rows} rows, {errors} with an error, in {output}"
        f" ({planned.missing_rows} predicted now, {seconds:.1f} s)"
    )


def _predict_missing(ray: Any, planned: Planned, address: str | None, actors: Actors) -> int:
    """Predict the rows that have no results, and return how many of them have an error.

    Raises:
        KitError: the archive does not load, or a file cannot be read or written.
    """
    from hf_serve.hosts.ray_data.job import run_job  # noqa: PLC0415

    missing, errors = planned.missing_rows, 0
    if not missing:
        return errors
    _connect(ray, address)
    try:
        with _progress() as progress:
            bar = progress.add_task("rows", total=planned.rows, completed=planned.rows - missing)

            def advance(done: int, failed: int) -> None:
                nonlocal errors
                errors += failed
                progress.advance(bar, done)

            run_job(planned, ray, actors, advance)
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command does what is missing.", err=True)
        raise typer.Exit(130) from None
    except ray.exceptions.RayError as error:
        raise KitError(last_line(str(error))) from None
    finally:
        ray.shutdown()
    return errors


def _connect(ray: Any, address: str | None) -> None:
    if address:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    else:
        ray.init(
            num_cpus=available_cores(),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level="ERROR",
        )


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise KitError("--parameters is no JSON object; write for example '{\"top_k\": 1}'.")
    return value


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
