"""Predict every row of files with an archive, in this process or with Ray.

Ray needs requirements/ray.txt, in a separate environment. Run again, it does what is missing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hf_serve.handlers.errors import KitError
from hf_serve.handlers.process.resources import available_cores
from hf_serve.hosts.batch_files.job import Planned, plan_job, run_job
from hf_serve.hosts.command_line import plain_errors
from hf_serve.hosts.ray_environment import import_ray
from hf_serve.hosts.tracebacks import last_line
from hf_serve.scripts.archives.verification import signed_digest
from hf_serve.scripts.command_line import counted
from hf_serve.scripts.serving.host_commands import require_environment

RunMissing = Callable[[Planned, Callable[[int, int], None]], None]
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
        str | None,
        typer.Option(help="A cluster of Ray; without it, Ray runs on this machine alone."),
    ] = None,
    actors: Annotated[
        int | None,
        typer.Option(min=1, help="Use Ray, with as many processes; default: one a node."),
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(min=1, help="Use Ray; cores of each process; default: all.")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option(min=0, help="Use Ray; GPUs of each process; default: none.")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="Use the archive only if it is signed with this key.")
    ] = None,
) -> None:
    """Predict the rows of files; each has its columns, and `result` or `error`.

    It runs in this process, or with Ray where an option of Ray is given. Stopped, it goes on where
    it was when it is run again.
    """
    with_ray = not (address is None and actors is None and cpus is None and gpus is None)
    if with_ray:
        require_environment("ray")
        import_ray(local=address is None)
    values = _parsed(parameters)
    planned = plan_job(
        archive,
        source,
        output,
        column=column,
        output_format=output_format,
        parameters=values,
        chunk_rows=chunk_rows,
        sha256=signed_digest(archive, public_key) if public_key else None,
    )
    start = time.monotonic()
    run_missing: RunMissing = run_job
    if with_ray:
        run_missing = partial(
            _run_with_ray, address=address, actors=actors, cpus=cpus, gpus=gpus or 0.0
        )
    errors = planned.errors + _predict_missing(planned, run_missing)
    seconds = time.monotonic() - start
    console.print(
        f"{counted(planned.rows, 'row')}, {errors} with an error, in {output}"
        f" ({planned.missing_rows} predicted now, {seconds:.1f} s)",
        markup=False,
    )


def _predict_missing(planned: Planned, run_missing: RunMissing) -> int:
    """Predict the rows that have no results, and return how many of them have an error.

    Raises:
        KitError: the archive does not load, or a file cannot be read or written.
    """
    missing, errors = planned.missing_rows, 0
    if not missing:
        return errors
    try:
        with _progress() as progress:
            bar = progress.add_task("rows", total=planned.rows, completed=planned.rows - missing)

            def advance(done: int, failed: int) -> None:
                nonlocal errors
                errors += failed
                progress.advance(bar, done)

            run_missing(planned, advance)
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command does what is missing.", err=True)
        raise typer.Exit(130) from None
    return errors


def _run_with_ray(
    planned: Planned,
    advance: Callable[[int, int], None],
    *,
    address: str | None,
    actors: int | None,
    cpus: int | None,
    gpus: float,
) -> None:
    """Predict the missing rows on a cluster, or on this machine alone."""
    import ray  # noqa: PLC0415

    from hf_serve.hosts.batch_files import ray_job  # noqa: PLC0415

    _connect(ray, address)
    try:
        ray_job.run_job(planned, ray_job.Actors(actors, cpus, gpus), advance)
    except ray.exceptions.RayError as error:
        raise KitError(last_line(str(error))) from None
    finally:
        ray.shutdown()


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
