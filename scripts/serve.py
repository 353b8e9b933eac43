"""Serve the archives of the model store: `start`, `stop`, `status` and `logs` of one TorchServe."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from hf_serve.handlers.errors import KitError
from hf_serve.hosts.command_line import plain_errors
from hf_serve.hosts.fork_server.start import is_on as is_fork_server_on
from hf_serve.scripts.archives.model_store import list_archives
from hf_serve.scripts.command_line import PublicKey, counted, split_names
from hf_serve.scripts.installation import command_line
from hf_serve.scripts.paths import CONFIG, MODEL_STORE, shown
from hf_serve.scripts.serving.background import ONE_URL_SECONDS, AsgiServer, OneUrl, start_one_url
from hf_serve.scripts.serving.host_commands import body_limits
from hf_serve.scripts.serving.logs import (
    SERVER_LOG,
    asgi_filter,
    following_lines,
    last_lines,
    log_filter,
)
from hf_serve.scripts.serving.ports import Ports, require_distinct, require_free
from hf_serve.scripts.serving.processes import Memory
from hf_serve.scripts.serving.properties import default_ports, read_properties
from hf_serve.scripts.serving.readiness import unready_models
from hf_serve.scripts.serving.server import DRAIN_SECONDS, Server, drain
from hf_serve.scripts.serving.torchserve import JSON_LOGGING, LOGGING, TorchServe
from hf_serve.scripts.serving.workdirs import (
    STARTED,
    Workdir,
    find_workdir,
    log_of,
    running_server,
    workdir_option,
)

PORTS = default_ports(CONFIG)
# What its address is called where clients have the one URL.
TORCHSERVE_ITSELF = "TorchServe itself"

ApiKeyFile = Annotated[
    Path | None,
    typer.Option(help="API keys of the one URL, one in a line.", exists=True, dir_okay=False),
]
AllowRollouts = Annotated[
    bool,
    typer.Option(
        "--allow-rollouts",
        help="Let the management address load new versions, for `rollout`.",
    ),
]

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
console = Console(highlight=False, soft_wrap=True)

Port = Annotated[int, typer.Option(min=1, max=65535)]


@app.command()
@plain_errors()
def start(
    models: Annotated[
        list[str] | None, typer.Option(help="Names, repeated or with commas; default: all.")
    ] = None,
    port: Port = PORTS.inference,
    management_port: Port = PORTS.management,
    metrics_port: Port = PORTS.metrics,
    grpc_port: Port = PORTS.grpc_inference,
    grpc_management_port: Port = PORTS.grpc_management,
    model_store: Annotated[
        Path, typer.Option(help="The folder of archives.", show_default=shown(MODEL_STORE))
    ] = MODEL_STORE,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, and show the log, until Ctrl-C.")
    ] = False,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Write each line of the logs as JSON.")
    ] = False,
    fork_server: Annotated[
        bool,
        typer.Option(
            "--fork-server/--no-fork-server",
            help="Fork workers from a process that has imported their packages.",
        ),
    ] = is_fork_server_on(),
    public_key: PublicKey = None,
    url_port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="The port of one URL for all models and protocols; 0: none."
        ),
    ] = 0,
    api_key_file: ApiKeyFile = None,
    allow_rollouts: AllowRollouts = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            help="Seconds until every model must answer.",
            show_default="120, and 120 for each model that a core loads",
        ),
    ] = None,
    workdir: Annotated[
        Path,
        typer.Option(help="Holds the server's settings and logs.", show_default=shown(STARTED)),
    ] = STARTED,
) -> None:
    """Start TorchServe on this machine and return once every model answers.

    A model that does not load is named with the reason, and the others are served.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ports = Ports(port, management_port, metrics_port, grpc_port, grpc_management_port)
    settings = read_properties(CONFIG)
    Ports.of(settings)  # It says what is wrong with them.
    _leave_if_running(workdir)
    require_distinct(ports, url_port)
    if url_port:
        require_free(url_port)
        _require_no_tokens(settings)
    archives = list_archives(model_store, split_names(models))
    torchserve = TorchServe(
        workdir=workdir,
        model_store=model_store,
        models=archives,
        ports=ports,
        config=CONFIG,
        config_overrides={"enable_model_api": "true"} if allow_rollouts else {},
        timeout=timeout,
        console=foreground,
        log_config=JSON_LOGGING if json_logs else LOGGING,
        fork_server=fork_server,
        public_key=public_key,
        on_launched=partial(_launch_one_url, port=url_port, api_key_file=api_key_file),
        on_ready=lambda name, seconds: console.print(f"{name} is ready ({seconds:.1f} s)"),
        on_failed=lambda name, reason: typer.echo(f"{name} did not load: {reason}", err=True),
    )
    if foreground:
        _stay(torchserve)
    else:
        with console.status("Starting TorchServe and loading models"):
            server = _start(torchserve)
        _announce(server)


@app.command()
@plain_errors()
def stop(
    workdir: Workdir = None,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for requests that run; 0 waits for none.")
    ] = DRAIN_SECONDS,
) -> None:
    """Stop the server and everything that it started, once it has answered its requests."""
    workdir = find_workdir(workdir)
    if asgi := AsgiServer.of(workdir):
        runs = asgi.is_alive()
        asgi.stop()
        if runs:
            console.print(f"{asgi.title} has stopped.")
            return
    server = Server.of(workdir)
    alive = server is not None and server.is_alive()
    _stop_one_url(workdir)
    if server:
        if alive and timeout:
            _drain(server, timeout)
        server.stop()
    console.print("TorchServe has stopped." if alive else "TorchServe was not running.")


@app.command()
@plain_errors()
def status(workdir: Workdir = None) -> None:
    """Say which models answer; exit code 1 when not all of them do."""
    workdir = find_workdir(workdir)
    server = running_server(workdir)
    if isinstance(server, AsgiServer):
        _show_asgi(server, workdir)
    if server is None:
        console.print("TorchServe is not running.")
        raise typer.Exit(1)
    unready = unready_models(server)
    for name in server.models:
        console.print(_line_of_model(name, unready.get(name), workdir), markup=False)
    for name, reason in server.left_out.items():
        console.print(f"{name} is not served: {reason}", markup=False)
    workers = server.workers()
    console.print(f"{counted(len(workers), 'worker')}: {Memory.of_all(workers)}")
    own = f"{server.inference_url} (process {server.pid}, logs in {workdir / 'logs'})"
    if one_url := OneUrl.of(workdir):
        state = "answers" if one_url.is_alive() and one_url.is_ready() else "does not answer"
        console.print(f"{one_url.inference_url} {state} (log in {one_url.log})")
        own = f"{TORCHSERVE_ITSELF}: {own}"
    console.print(own)
    raise typer.Exit(1 if unready or server.left_out else 0)


@app.command()
@plain_errors()
def logs(
    model: Annotated[
        str | None, typer.Argument(help="A model, whose workers' lines are shown; default: all.")
    ] = None,
    lines: Annotated[int, typer.Option(min=0, help="How many of the last lines are shown.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", help="Stay, and show new lines, until Ctrl-C.")
    ] = False,
    problems: Annotated[
        bool,
        typer.Option(
            "--problems", help="Show only warnings, errors, exceptions and failed requests."
        ),
    ] = False,
    workdir: Workdir = None,
) -> None:
    """Show the log of the server, or of the workers of one model; a stopped server has it, too."""
    workdir = find_workdir(workdir)
    path = log_of(workdir)
    if path is None:
        logs = workdir / "logs"
        console.print(f"There is no log in {logs}; start the server, or name its --workdir.")
        raise typer.Exit(1)
    make_filter = log_filter if path.name == SERVER_LOG else asgi_filter
    is_shown = make_filter(model, problems=problems)
    found, position = last_lines(path, lines, is_shown)
    for line in found:
        typer.echo(line)
    if lines and not (found or follow):
        models = _models_of(workdir)
        others = sorted(models) if model not in (None, *models) else []
        unknown = f" There is no model {model}; there are {', '.join(others)}." if others else ""
        typer.echo(f"{path} has no such lines.{unknown}", err=True)
    for line in following_lines(path, position, is_shown) if follow else ():
        typer.echo(line)


def _models_of(workdir: Path) -> Collection[str]:
    """Return the names of the models of a server; none where it does not say."""
    server = running_server(workdir) or Server.of(workdir)
    if isinstance(server, AsgiServer):
        return server.problems()
    return server.models if server else ()


def _show_asgi(server: AsgiServer, workdir: Path) -> NoReturn:
    """Say which models of a server without TorchServe answer, and exit."""
    problems = server.problems()
    for name, problem in problems.items():
        console.print(_line_of_model(name, problem, workdir), markup=False)
    state = "" if problems else " does not answer yet"
    console.print(f"{server.inference_url}{state} (process {server.pid}, log in {server.log})")
    raise typer.Exit(0 if problems and not any(problems.values()) else 1)


def line_of_one_url(url: str) -> str:
    """Return what a command says of the address of all models."""
    return f"One URL for all models: {url} (OpenAI's clients: {url}/v1; see /docs)"


def _line_of_model(name: str, reason: str | None, workdir: Path) -> str:
    """Return whether a model answers.

    Args:
        reason: why it does not, empty if that is not known; None if it does.
        workdir: the work folder of its server.
    """
    if reason is None:
        return f"{name} is ready"
    if not reason:
        return f"{name} does not answer"
    log = command_line("logs", name, *workdir_option(workdir))
    return f"{name} does not answer: {reason.rstrip('.')}; `{log}` shows its log."


def _require_no_tokens(settings: Mapping[str, str]) -> None:
    """Check that TorchServe answers the server at one URL, which has none of its tokens."""
    if settings.get("disable_token_authorization") != "true":
        raise KitError(
            f"{CONFIG} turns TorchServe's tokens on, and the server at one URL has none; set"
            " disable_token_authorization=true there, and protect the URL with --api-key-file."
        )


def _leave_if_running(workdir: Path) -> None:
    if running := running_server(workdir):
        title = running.title if isinstance(running, AsgiServer) else "TorchServe"
        stop_line = command_line("stop", *workdir_option(workdir))
        console.print(f"{title} is running already; `{stop_line}` ends it.")
        status(workdir)
        return
    _stop_one_url(workdir)
    if server := Server.of(workdir):
        server.stop()


def _announce(server: Server) -> None:
    if one_url := OneUrl.of(server.workdir):
        console.print(line_of_one_url(one_url.inference_url))
        console.print(f"{TORCHSERVE_ITSELF}: {server.inference_url}")
    else:
        console.print(f"Ask at {server.inference_url}/predictions/<model>")


def _launch_one_url(server: Server, port: int, api_key_file: Path | None) -> None:
    """Start the server at one URL, unless its port is 0, while models are loaded."""
    if port:
        start_one_url(server, port, body_limits(), api_key_file, timeout=None)


def _start(torchserve: TorchServe) -> Server:
    """Start TorchServe and the server at one URL; neither runs where one of them fails."""
    try:
        server = torchserve.start()
    except BaseException:
        _stop_one_url(torchserve.workdir)
        raise
    try:
        if one_url := OneUrl.of(server.workdir):
            one_url.wait_until_ready(ONE_URL_SECONDS)
    except BaseException:
        server.stop()
        raise
    return server


def _stop_one_url(workdir: Path) -> None:
    if one_url := OneUrl.of(workdir):
        one_url.stop()


def _stay(torchserve: TorchServe) -> None:
    server = _start(torchserve)
    try:
        _announce(server)
        while server.is_alive():
            time.sleep(0.5)
    except (KeyboardInterrupt, SystemExit) as stopped:
        _stop_one_url(server.workdir)
        _drain(server, DRAIN_SECONDS)
        if isinstance(stopped, SystemExit):
            raise
        return
    finally:
        _stop_one_url(server.workdir)
        server.stop()
    raise typer.Exit(1)


def _drain(server: Server, timeout: float) -> None:
    """Wait for requests that run; Ctrl-C ends that."""
    with console.status(f"Waiting at most {timeout:g} s for requests that run"):
        if not drain(server, timeout):
            console.print(f"Requests still run after {timeout:g} s; they end now.")


if __name__ == "__main__":
    app()
