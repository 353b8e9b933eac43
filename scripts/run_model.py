"""Serve models by their names alone: detect the mode, write the YAML, download, pack and start."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.request import getproxies, proxy_bypass

import typer
import yaml
from rich.console import Console

from hf_serve.handlers.config.documents import parse_json, parse_yaml
from hf_serve.handlers.config.handler_section import CHECKPOINT, CUSTOM_MODE, HandlerSection, modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.config.task_aliases import suggest_mode
from hf_serve.handlers.errors import KitError
from hf_serve.hosts.asgi.pool_limits import (
    LOAD_SECONDS,
    KeepAlive,
    LoadTimeout,
    ModelsMax,
    ModelsMemory,
    Pin,
    PoolLimits,
)
from hf_serve.hosts.command_line import module_command, plain_errors
from hf_serve.scripts import create_archive, download_models, serve
from hf_serve.scripts.archives.archive_summary import MULTI_LABEL, is_archive
from hf_serve.scripts.archives.model_store import (
    SUFFIXES,
    list_archives,
    name_of_archive,
    packed_version,
    read_config,
    read_file,
    why_unreadable,
)
from hf_serve.scripts.command_line import errors_in_options, in_options
from hf_serve.scripts.hub.catalogue import CatalogueEntry, find_in_catalogue
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.installation import command_line
from hf_serve.scripts.paths import YAMLS, model_name
from hf_serve.scripts.serving.background import AsgiServer, record_asgi_server
from hf_serve.scripts.serving.ports import HOST, Ports, require_distinct, require_free
from hf_serve.scripts.serving.readiness import unready_models
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.workdirs import (
    RUN_FOLDER,
    SERVER_FOLDER,
    STORE,
    running_server,
    workdir_option,
)

if TYPE_CHECKING:
    from hf_serve.scripts.hub.model_check import ModelCheck

ARCHIVE = ".mar"
EMPTY: Mapping[str, Any] = MappingProxyType({})
# Characters of the request in a command that is shown.
MAX_SHOWN = 300
# What is said before and by a process that becomes the server.
LOADING, ENDING = "Loading the models, then requests are answered", "Ctrl-C ends it."

console = Console(highlight=False, soft_wrap=True)


class Host(StrEnum):
    """What serves the models."""

    TORCHSERVE = "torchserve"
    ASGI = "asgi"


class NotRunnable(KitError):
    """A model cannot be served by its name alone."""


@plain_errors()
def main(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Ids of the hub, names of the catalogue, folders of checkpoints, YAML files, or"
            " archives."
        ),
    ],
    mode: Annotated[str | None, typer.Option(help="The mode, where the files fit several.")] = None,
    revision: Annotated[str | None, typer.Option(help="The revision on the hub.")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Accept weights that are pickles.")
    ] = False,
    host: Annotated[Host, typer.Option(help="What serves them.")] = Host.TORCHSERVE,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the one URL.")] = 8000,
    folder: Annotated[
        Path, typer.Option(help="Where the YAML files, the archives and the logs are put.")
    ] = RUN_FOLDER,
    api_key_file: serve.ApiKeyFile = None,
    models_max: ModelsMax = None,
    models_memory: ModelsMemory = None,
    keep_alive: KeepAlive = None,
    load_timeout: LoadTimeout = LOAD_SECONDS,
    pin: Pin = None,
    allow_rollouts: serve.AllowRollouts = False,
    torchserve_port: Annotated[int, typer.Option(min=1, max=65535)] = serve.PORTS.inference,
    management_port: Annotated[int, typer.Option(min=1, max=65535)] = serve.PORTS.management,
    metrics_port: Annotated[int, typer.Option(min=1, max=65535)] = serve.PORTS.metrics,
    grpc_port: Annotated[int, typer.Option(min=1, max=65535)] = serve.PORTS.grpc_inference,
    grpc_management_port: Annotated[
        int, typer.Option(min=1, max=65535)
    ] = serve.PORTS.grpc_management,
) -> None:
    """Serve models at one URL, each by its id or name, its folder, its YAML or its archive.

    The mode of a checkpoint follows from its files. The YAML that is written can be edited, and the
    next run uses it. What has not changed is neither downloaded nor packed again.
    """
    if mode and mode not in modes():
        raise typer.BadParameter(f"there is no mode {mode}; {suggest_mode(mode, modes())}")
    on_demand = PoolLimits.of_options(models_max, models_memory, keep_alive, load_timeout, pin)
    _require_stopped(folder)
    if host is Host.TORCHSERVE:
        ports = torchserve_port, management_port, metrics_port, grpc_port, grpc_management_port
        require_distinct(Ports(*ports), port)
        if on_demand:
            raise typer.BadParameter(
                "models are loaded on demand by --host asgi alone; name it, or leave out"
                " --models-max, --models-memory, --keep-alive and --pin."
            )
    require_free(port)
    _require_own_names(models)
    store = folder / STORE
    archives = [
        archive_of(model, mode, revision, folder, store, allow_pickle=allow_pickle)
        for model in models
    ]
    url = f"http://{HOST}:{port}"
    examples = _examples(archives, url, api_key_file)
    if host is Host.ASGI:
        shown = _try_it(examples.values())
        greeting = f"\n{serve.line_of_one_url(url)}\n{shown}\n{ENDING}"
        console.print(LOADING)
        keys = ["--api-key-file", str(api_key_file.resolve())] if api_key_file else []
        limits = on_demand.arguments() if on_demand else []
        server = record_asgi_server(folder / SERVER_FOLDER, port, api_key_file)
        options = ["--port", str(port), *keys, *limits, "--log-file", str(server.log)]
        serve_in_process(archives, [*options, "--greeting", greeting])
    for notice in _other_versions(archives, store):
        console.print(notice, markup=False)
    serve.start(
        models=[name_of_archive(path) for path in archives],
        port=torchserve_port,
        management_port=management_port,
        metrics_port=metrics_port,
        grpc_port=grpc_port,
        grpc_management_port=grpc_management_port,
        model_store=store,
        url_port=port,
        api_key_file=api_key_file,
        allow_rollouts=allow_rollouts,
        workdir=folder / SERVER_FOLDER,
    )
    workdir = folder / SERVER_FOLDER
    failed = _commands_of_failed(workdir)
    shown = _try_it(example for name, example in examples.items() if name not in failed)
    console.print(f"{shown}\n{_verbs(workdir)}", markup=False)
    for name, command in failed.items():
        typer.echo(f"{name} did not load; see `{command}`.", err=True)


def write_yaml(found: ModelCheck, folder: Path, keys: Mapping[str, Any] = EMPTY) -> Path:
    """Write the YAML of a checkpoint to a folder; one that names the same model stays.

    Args:
        keys: keys that the checkpoint needs in the `handler` section.

    Raises:
        NotRunnable: the checkpoint is not served, or another model has the name.
    """
    if found.refusal:
        raise NotRunnable(f"{found.model} is not served. {in_options(found.refusal)}")
    if found.left_out:
        console.print(found.left_out, markup=False)
    path = folder / f"{name_of(found.model)}.yaml"
    if path.exists():
        named = ModelConfig.read(path).handler.model_name or ""
        if named != found.model and Path(named).resolve() != Path(found.model).resolve():
            raise NotRunnable(
                f"{path} is the YAML of {named}, and {found.model} has the same name; remove it,"
                f" copy it to NAME.yaml and name {found.model} there, or name another --folder."
            )
        console.print(f"{path} is there already, and is used as it is", markup=False)
        return path
    is_folder = Path(found.model).is_dir()
    handler: dict[str, Any] = {
        "mode": found.mode.mode,
        "model_name": str(Path(found.model).resolve()) if is_folder else found.model,
    }
    if found.commit:
        handler["revision"] = found.commit
    handler |= {"save_mode": "auto", "dtype": "auto"}
    if found.is_explained and found.fastest != CHECKPOINT:
        # Explanations with gradients run the checkpoint.
        handler["explain_with_checkpoint"] = True
    handler |= keys
    folder.mkdir(parents=True, exist_ok=True)
    text = f"# The mode is {found.mode.mode}, because {found.mode.reason}.\n"
    path.write_text(text + yaml.safe_dump({"handler": handler}, sort_keys=False), "utf-8")
    console.print(f"{path} is written: {text[2:].strip()}", markup=False)
    return path


def name_of(model: str) -> str:
    """Return the name under which a checkpoint is served, by its id or its folder."""
    last = Path(model).resolve().name if Path(model).is_dir() else model.rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-") or "model"


def example_of(
    name: str, handler: HandlerSection, url: str, checkpoint: Mapping[str, Any] = EMPTY
) -> str:
    """Return a command that asks a model.

    It asks the first of its adapters if it has some, and for all labels of a model that scores each
    of them by itself.

    Args:
        checkpoint: the config.json of the checkpoint.
    """
    # This import loads torch, which `--help` does not need.
    from hf_serve.handlers import tasks  # noqa: PLC0415

    address = f"{url}/predictions/{name}"
    if handler.mode == CUSTOM_MODE:
        return shlex.join(["curl", address, "-T", "request.json"])
    wire = tasks.get(handler.mode).description.wire
    if wire.reads_media and len(wire.input_columns[0]) == 1:
        return shlex.join(["curl", address, "-T", f"{wire.input_columns[0][0]}-file"])
    added: dict[str, Any] = {}
    if handler.adapters:
        added["adapter_id"] = next(iter(handler.adapters))
    if checkpoint.get("problem_type") == MULTI_LABEL:
        added["top_k"] = None
    example = dict(wire.example)
    if added:
        example["parameters"] = {**example.get("parameters", {}), **added}
    body = json.dumps(example, ensure_ascii=False)
    body = body if len(body) <= MAX_SHOWN else "@request.json"
    return shlex.join(["curl", address, "-H", "Content-Type: application/json", "-d", body])


def archive_of(
    model: str,
    mode: str | None,
    revision: str | None,
    folder: Path,
    store: Path,
    *,
    allow_pickle: bool = False,
) -> Path:
    """Return the archive of a model, which is downloaded and packed where it is not one.

    Args:
        model: its id on the hub, its folder, its YAML or its archive.
        mode: its mode, where the files fit several.
        revision: its revision on the hub.
        folder: where its YAML is written.
        store: where its archive is put.
        allow_pickle: whether weights that are pickles are served.

    Raises:
        KitError: it is not served, or cannot be had.
    """
    path = Path(model)
    if path.exists() and is_archive(path):
        # `.` and `..` have no name.
        return _brought(path.resolve() if path.is_dir() else path, store)
    config = path if path.suffix in YAMLS and path.is_file() else None
    if config is None:
        config = _write_yaml_of(model, mode, revision, folder, allow_pickle=allow_pickle)
    if not Path(ModelConfig.read(config).handler.model_name or "").is_dir():
        download_models.main([config])
    # The server loads the model next, and says why it does not load.
    create_archive.main([config], export_path=store, check=False)
    return store / f"{model_name(config)}{ARCHIVE}"


def _brought(path: Path, store: Path) -> Path:
    """Return the archive in a store, to which it is copied as a whole or not at all.

    Raises:
        NotRunnable: the store has the same model in another format, which is served instead.
    """
    target = store / path.name
    if path.resolve() == target.resolve():
        return target
    others = [store / f"{name_of_archive(path)}{suffix}" for suffix in ("", *SUFFIXES)]
    other = next((each for each in others if each != target and each.exists()), None)
    if other:
        raise NotRunnable(f"{other} is there, too, and has the same name as {path}; remove one.")
    store.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".copying-", dir=store) as scratch:
        draft = Path(scratch) / path.name
        if path.is_dir():
            shutil.copytree(path, draft)
            shutil.rmtree(target, ignore_errors=True)
        else:
            shutil.copyfile(path, draft)
        draft.replace(target)
    return target


def serve_in_process(archives: Sequence[Path], options: Sequence[str]) -> NoReturn:
    """Serve archives without TorchServe, in place of this process, until SIGTERM or Ctrl-C.

    Args:
        archives: the archives.
        options: options of `python -m hf_serve.hosts.asgi`.
    """
    command = module_command("hf_serve.hosts.asgi", *map(Path.absolute, archives), *options)
    console.file.flush()
    os.execv(sys.executable, command)  # noqa: S606


def _other_versions(archives: Sequence[Path], store: Path) -> Iterator[str]:
    """Yield a sentence about each archive that is not served, as another version is the default."""
    served = list_archives(store, [name_of_archive(path) for path in archives])
    for path in archives:
        name = name_of_archive(path)
        file = served[name]
        if file != path.name:
            version = packed_version(path)
            switch = command_line("rollout", "to", name, version)
            yield (
                f"{name} is served from {file}, its default version; {path.name} is version"
                f" {version}, and `{switch}` makes it the default."
            )


def _require_own_names(models: Sequence[str]) -> None:
    """Check that no YAML or archive has the name of another model, which it would replace.

    Raises:
        NotRunnable: one has, or is not there.
    """
    found: dict[str, str] = {}
    for model in models:
        path = Path(model).resolve() if Path(model).is_dir() else Path(model)
        is_yaml = path.suffix in YAMLS and not path.is_dir()
        is_packed = is_archive(path)
        is_file = is_yaml or is_packed
        if is_file and not path.exists():
            raise NotRunnable(f"There is no file {path}; correct the path.")
        name = name_of_archive(path) if is_packed else path.stem if is_yaml else name_of(model)
        other = found.setdefault(name, model)
        if (is_file or Path(other).exists()) and Path(other).resolve() != path.resolve():
            raise NotRunnable(
                f"{other} and {model} have the same name, under which one of them is served; rename"
                " one."
            )


def _require_stopped(folder: Path) -> None:
    server = running_server(folder / SERVER_FOLDER)
    if server:
        found = server.problems() if isinstance(server, AsgiServer) else server.models
        models = ", ".join(found) or "no model"
        stop = command_line("stop", *workdir_option(folder / SERVER_FOLDER))
        raise NotRunnable(
            f"A server of {folder} runs already, with {models}; run `{stop}` first, or name another"
            " --folder and other ports."
        )


def _write_yaml_of(
    model: str, mode: str | None, revision: str | None, folder: Path, *, allow_pickle: bool
) -> Path:
    keys = {"allow_pickle": True} if allow_pickle else {}
    known = None if Path(model).is_dir() else find_in_catalogue(model)
    if known is None:
        found = _checked(model, mode, revision, allow_pickle=allow_pickle)
        return write_yaml(found, folder, keys)
    _require_served(known.model, known.entry)
    mode = mode or known.entry.mode
    found = _checked(known.model, mode, revision, allow_pickle=allow_pickle)
    return write_yaml(found, folder, {**known.entry.handler, **keys})


def _require_served(model: str, entry: CatalogueEntry) -> None:
    if entry.refused:
        raise NotRunnable(f"{model} is not served. {entry.refused}")


def _checked(
    model: str, mode: str | None, revision: str | None, *, allow_pickle: bool
) -> ModelCheck:
    with console.status(f"Reading the small files of {model}"):
        # This import loads torch, which takes seconds, and `--help` does not need it.
        from hf_serve.scripts.hub.model_check import check_model  # noqa: PLC0415

        with errors_in_options():
            return check_model(model, revision, Hub(), mode, allow_pickle=allow_pickle)


def _commands_of_failed(workdir: Path) -> dict[str, str]:
    """Return the models of a server that do not answer, each with the command that says why."""
    server, option = Server.of(workdir), workdir_option(workdir)
    if server is None:
        return {}
    # The log has nothing of archives that were left out.
    left_out = dict.fromkeys(server.left_out, command_line("status", *option))
    return left_out | {name: command_line("logs", name, *option) for name in unready_models(server)}


def _examples(archives: Sequence[Path], url: str, api_key_file: Path | None) -> dict[str, str]:
    """Return a command for each model that asks it, by the name of the model."""
    key = f' -H "Authorization: Bearer $(head -n 1 {shlex.quote(str(api_key_file))})"'
    examples = dict[str, str]()
    for archive in archives:
        if handler := _handler_of(archive):
            name = name_of_archive(archive)
            command = example_of(name, handler, url, _checkpoint_of(archive))
            examples[name] = f"{command}{key if api_key_file else ''}"
    return examples


def _try_it(examples: Iterable[str]) -> str:
    """Return the commands that ask models, as they are shown."""
    lines = [f"  {example}" for example in examples]
    return "\n".join(["\nTry it:", *lines, "", *_proxy_notice()]) if lines else ""


def _proxy_notice() -> Iterator[str]:
    """Yield what clients on this machine need where the environment names a proxy."""
    if "http" in getproxies() and not proxy_bypass(HOST):
        yield f"The environment names a proxy: set NO_PROXY={HOST} for clients on this machine.\n"


def _handler_of(archive: Path) -> HandlerSection | None:
    """Return what an archive says of its model; None where the server says what is wrong."""
    if why_unreadable(archive) is None:
        with suppress(KitError, KeyError):
            return ModelConfig.parse(parse_yaml(read_config(archive))).handler
    return None


def _checkpoint_of(archive: Path) -> Mapping[str, Any]:
    """Return the config.json in an archive; empty where there is none."""
    with suppress(KeyError, ValueError):
        return dict(parse_json(read_file(archive, "config.json")))
    return EMPTY


def _verbs(workdir: Path) -> str:
    """Return what can be done with the server that runs."""
    logs, stop = (command_line(verb, *workdir_option(workdir)) for verb in ("logs", "stop"))
    return f"{logs} shows its log, and {stop} stops it."


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
