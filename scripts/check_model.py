"""Say how a model is served, from its small files and before its weights are downloaded.

Of an archive, it says what is in it, and checks its sums.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from hf_serve.handlers.config.handler_section import CUSTOM_MODE, HandlerSection, modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.config.task_aliases import suggest_mode
from hf_serve.handlers.errors import ConfigError, WrongConfig
from hf_serve.handlers.formats import check_config
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.archives.archive_summary import ArchiveSummary, is_archive
from hf_serve.scripts.command_line import counted, errors_in_options, in_options
from hf_serve.scripts.hub.catalogue import find_in_catalogue
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.paths import YAMLS, checkpoint_of

if TYPE_CHECKING:
    from hf_serve.scripts.hub.model_check import ModelCheck

out, err = Console(highlight=False), Console(stderr=True, highlight=False, soft_wrap=True)
SHOWN_LABELS = 8


@plain_errors()
def main(
    model: Annotated[
        str,
        typer.Argument(
            help="An id of the hub, a name of the catalogue, a folder, a YAML file that names one,"
            " or an archive."
        ),
    ],
    revision: Annotated[str | None, typer.Option(help="The revision on the hub.")] = None,
    mode: Annotated[str | None, typer.Option(help="The mode, where the files fit several.")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Accept weights that are pickles.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how a model is served: its mode, formats, size and memory, or why it is refused.

    HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are read from the environment.
    """
    if mode and mode not in modes():
        raise typer.BadParameter(f"there is no mode {mode}; {suggest_mode(mode, modes())}")
    handler = config = None
    if is_archive(Path(model)):
        _print_archive(ArchiveSummary.read(Path(model)), as_json=as_json)
        return
    if Path(model).suffix in YAMLS:
        config = ModelConfig.read(Path(model))
        handler = config.handler
        if handler.mode == CUSTOM_MODE:
            _print_custom(handler, as_json=as_json)
            return
        model, mode = _model_of(Path(model), config), mode or handler.mode
        revision = revision or handler.revision
    elif not Path(model).is_dir() and (known := find_in_catalogue(model)):
        model, mode = known.model, mode or known.entry.mode
        if known.entry.refused:
            err.print(f"{model} is not served. {known.entry.refused}", markup=False)
            raise typer.Exit(1)
    reading = err.status(f"Reading the small files of {model}")
    with reading, nullcontext() if handler else errors_in_options():
        # This import loads torch, which takes seconds, and `--help` does not need it.
        from hf_serve.scripts.hub.model_check import check_model  # noqa: PLC0415

        found = check_model(
            model, revision, Hub(), mode, allow_pickle=allow_pickle, handler=handler
        )
    if config and not found.refusal:
        found = replace(found, refusal=_why_not_packed(config))
    if as_json:
        out.print_json(json.dumps(asdict(found) | {"memory": dict(found.memory)}))
    else:
        out.print(table(found))
    if found.refusal:
        refusal = found.refusal if handler else in_options(found.refusal)
        err.print(f"It is not served. {refusal}", markup=False)
        raise typer.Exit(1)


def _why_not_packed(config: ModelConfig) -> str | None:
    """Return why the format that a YAML names is not packed; None if it is."""
    try:
        check_config(config)
    except ConfigError as error:
        return str(error)
    return None


def _print_custom(handler: HandlerSection, *, as_json: bool) -> None:
    reason = f"{handler.custom} loads the model and answers requests"
    if as_json:
        out.print_json(json.dumps({"mode": {"mode": handler.mode, "reason": reason}}))
    else:
        out.print(f"{reason}.", markup=False)


def _print_archive(found: ArchiveSummary, *, as_json: bool) -> None:
    if as_json:
        document = asdict(found) | {"config": found.config.model_dump(exclude_unset=True)}
        document["quality"] = found.quality and found.quality.as_json()
        out.print_json(json.dumps(document | {"memory": found.memory}))
    else:
        out.print(table_of_archive(found))


def _model_of(path: Path, config: ModelConfig) -> str:
    """Return the model that a YAML names, or the folder of its checkpoint.

    Raises:
        WrongConfig: it names none, and there is no such folder.
    """
    if named := config.handler.model_name:
        return named
    folder = checkpoint_of(path, config)
    if folder.is_dir():
        return str(folder)
    raise WrongConfig(
        "handler.model_name", f"is missing, and there is no folder {folder}", "name the model"
    )


def table(found: ModelCheck) -> Table:
    """Return what is known of a model, in lines."""
    made = Table(box=None, show_header=False)
    commit = f" at {found.commit[:7]}" if found.commit else ""
    made.add_row("model", f"{found.model}{commit}")
    made.add_row("mode", f"{found.mode.mode}, because {found.mode.reason}")
    limit = f", up to {found.max_positions:,} tokens" if found.max_positions else ""
    made.add_row(
        "architecture",
        f"{found.architecture or 'unknown'}, about"
        f" {_number(found.parameters)} parameters in {found.dtype}{limit}",
    )
    if found.labels:
        made.add_row("labels", _labels(found.labels, found.independent_labels))
    row = "download" if found.commit else "files"
    made.add_row(row, f"{decimal(found.size)} in {found.files} files")
    memory = ", ".join(f"{decimal(size)} in {dtype}" for dtype, size in found.memory.items())
    made.add_row("memory", f"{memory}, for the weights of each worker")
    others = [name for name in found.not_installed if name != found.fastest]
    for name, problem in found.formats.items():
        if name in others:
            continue
        fastest = "the fastest on this machine" if name == found.fastest else "possible"
        made.add_row("save_mode", f"{name}: {f'not possible: {problem}' if problem else fastest}")
    if others:
        made.add_row("not installed", f"packages of {', '.join(others)}, which packing names")
    if found.left_out:
        made.add_row("left out", found.left_out)
    made.add_row("served", "no" if found.refusal else "yes")
    return made


def table_of_archive(found: ArchiveSummary) -> Table:
    """Return what is in an archive, in lines."""
    handler = found.config.handler
    made = Table(box=None, show_header=False)
    packed = f"packed with version {found.kit} of the kit" if found.kit else "not from the kit"
    made.add_row("archive", f"{found.name}, version {found.version}, {packed}")
    made.add_row("mode", handler.mode)
    if architectures := found.model.get("architectures"):
        made.add_row("architecture", str(architectures[0]))
    if found.labels and handler.mode.endswith("classification"):
        made.add_row("labels", _labels(found.labels, found.has_independent_labels))
    made.add_row("save_mode", f"{handler.save_mode}, dtype: {handler.dtype}")
    if found.quality:
        made.add_row("fidelity", f"{found.quality}")
    made.add_row("files", f"{decimal(found.size)} in {found.files} files")
    workers = counted(found.config.minWorkers, "worker")
    made.add_row("memory", f"at least {decimal(found.memory)} for {workers}")
    signed = ", which are signed" if found.is_signed else ""
    made.add_row("sums", f"all files have theirs{signed}" if found.has_sums else "none")
    made.add_row("served", found.served)
    return made


def _number(parameters: float) -> str:
    """Return a number of parameters in words: `22.7 million`, `25 thousand`."""
    million = 1e6
    if parameters >= million / 10:
        return f"{parameters / million:,.1f} million"
    return f"{parameters / 1e3:,.0f} thousand"


def _labels(labels: Sequence[str], are_independent: bool) -> str:
    """Return the first labels of a classifier, and how they are scored."""
    more = len(labels) - SHOWN_LABELS
    names = ", ".join(labels[:SHOWN_LABELS]) + (f" and {more} more" if more > 0 else "")
    return f"{names}; each is scored by itself" if are_independent else names


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
