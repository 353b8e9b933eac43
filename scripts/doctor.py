"""Check machine, configuration, archives and server, and say what to do."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import httpx
import typer
from packaging.requirements import Requirement

from hf_serve.handlers import __version__
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import KitError
from hf_serve.handlers.process.resources import cpu_quota, memory_limit
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.archives.archive_summary import WORKER_BYTES, ArchiveSummary
from hf_serve.scripts.archives.model_store import list_archives
from hf_serve.scripts.command_line import counted
from hf_serve.scripts.installation import DISTRIBUTION
from hf_serve.scripts.paths import CONFIG, MODEL_CONFIGS, MODEL_STORE, shown
from hf_serve.scripts.serving.background import AsgiServer
from hf_serve.scripts.serving.ports import PortInUse, Ports
from hf_serve.scripts.serving.processes import Memory
from hf_serve.scripts.serving.properties import read_properties
from hf_serve.scripts.serving.readiness import failures
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import java_home
from hf_serve.scripts.serving.workdirs import Workdir, find_workdir, running_server, store_of_run

CPUINFO = Path("/proc/cpuinfo")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Java's heap.
JAVA_BYTES = 1 << 30
# TorchServe has a file for each connection.
LEAST_FILES = 1024
GIB = 1 << 30

Level = Literal["ok", "advice", "problem"]


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        level: `ok`, `advice` where something could be better, `problem` where something is wrong.
        sentence: what was found and, where it is not `ok`, what to do.
    """

    level: Level
    sentence: str

    def __str__(self) -> str:
        return f"{self.level:<8}{self.sentence}"


@dataclass(frozen=True)
class Installation:
    """What is checked.

    Attributes:
        workdir: the folder of the server that `scripts/serve.py` starts.
        public_key: the key that archives must be signed with; None without one.
    """

    config: Path
    model_store: Path
    yamls: Sequence[Path]
    workdir: Path
    public_key: Path | None = None


@plain_errors()
def main(
    yamls: Annotated[
        list[Path] | None,
        typer.Argument(help="YAML files; default: those of model_configs/ and of `run`."),
    ] = None,
    config: Annotated[
        Path, typer.Option(help="The config.properties.", show_default=shown(CONFIG))
    ] = CONFIG,
    model_store: Annotated[
        Path | None,
        typer.Option(
            help="The folder of archives.",
            show_default=f"that of the server or of `run`, or {shown(MODEL_STORE)}",
        ),
    ] = None,
    workdir: Workdir = None,
    public_key: Annotated[
        Path | None, typer.Option(help="The key that archives must be signed with.")
    ] = None,
) -> None:
    """Check machine, configuration, archives and server; exit code 1 where something is wrong."""
    problems = 0
    workdir = find_workdir(workdir)
    server, run_store = Server.of(workdir), store_of_run(workdir)
    store = model_store or (server and server.model_store) or run_store or MODEL_STORE
    of_run = run_store.parent.glob("*.yaml") if run_store else ()
    named = yamls or [*sorted(MODEL_CONFIGS.rglob("*.yaml")), *sorted(of_run)]
    installation = Installation(config, store, named, workdir, public_key)
    for finding in diagnose(installation):
        problems += finding.level == "problem"
        typer.echo(str(finding))
    if problems:
        typer.echo(f"{counted(problems, 'problem')}.", err=True)
        raise typer.Exit(1)


def diagnose(installation: Installation) -> Iterator[Finding]:
    """Yield the findings of all checks."""
    for check in CHECKS:
        yield from check(installation)


def check_packages(_installation: Installation) -> Iterator[Finding]:
    """Check that the packages of the kit are installed in versions that it was tried with."""
    wrong = list(_wrong_packages())
    for sentence in wrong:
        yield Finding("problem", sentence)
    if not wrong:
        names = ("torch", "transformers", "torchserve")
        listed = ", ".join(f"{name} {version(name)}" for name in names)
        yield Finding("ok", f"Packages: {listed}.")


def check_java(_installation: Installation) -> Iterator[Finding]:
    """Check that there is a Java that runs TorchServe."""
    try:
        yield Finding("ok", f"Java: {java_home()}.")
    except KitError as error:
        yield Finding("problem", str(error))


def check_processor(_installation: Installation) -> Iterator[Finding]:
    """Tell the cores and whether they multiply bfloat16."""
    cores, quota = len(os.sched_getaffinity(0)), cpu_quota()
    limit = f", limited to {quota:g} by the cgroup" if quota and quota < cores else ""
    yield Finding("ok", f"Cores: {cores}{limit}.")
    flags = CPUINFO.read_text("utf-8").split() if CPUINFO.exists() else []
    fast = [flag for flag in ("amx_bf16", "amx_int8", "avx512_bf16") if flag in flags]
    if fast:
        yield Finding("ok", f"Instructions: {', '.join(fast)}; dtype: auto computes in bfloat16.")
    else:
        yield Finding("ok", "Instructions: neither AMX nor AVX512-BF16; dtype: auto is float32.")


def check_limits(_installation: Installation) -> Iterator[Finding]:
    """Check memory and open files."""
    memory = memory_limit()
    if memory < JAVA_BYTES + WORKER_BYTES:
        yield Finding(
            "problem",
            f"Memory: {memory / GIB:.1f} GiB, and Java with one worker takes"
            f" {(JAVA_BYTES + WORKER_BYTES) / GIB:.1f}; raise the limit of the container.",
        )
    else:
        yield Finding("ok", f"Memory: {memory / GIB:.1f} GiB.")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < LEAST_FILES:
        yield Finding(
            "advice", f"Open files: {files}; raise it with `ulimit -n 65536` for many clients."
        )


def check_config(installation: Installation) -> Iterator[Finding]:
    """Check the settings of TorchServe that decide who can do what."""
    path = installation.config
    if not path.is_file():
        yield Finding("problem", f"{path}: there is no such file; name one with --config.")
        return
    found = list(_config_findings(read_properties(path)))
    for finding in found:
        yield replace(finding, sentence=f"{path.name}: {finding.sentence}")
    if not found:
        yield Finding("ok", f"{path.name}: no setting is dangerous.")


def check_yamls(installation: Installation) -> Iterator[Finding]:
    """Check the YAML files of models."""
    wrong = 0
    for path in installation.yamls:
        try:
            ModelConfig.read(path)
        except KitError as error:
            wrong += 1
            yield Finding("problem", str(error))
    if installation.yamls and not wrong:
        yield Finding("ok", f"YAML files: {len(installation.yamls)} are valid.")


def check_archives(installation: Installation) -> Iterator[Finding]:
    """Check the archives: sums, signature, YAML, version, and memory and disk for all."""
    try:
        archives = list_archives(installation.model_store)
    except KitError as error:
        yield Finding("advice", str(error))
        return
    needed = JAVA_BYTES
    unpacked = 0
    for name, file in archives.items():
        path = installation.model_store / file
        try:
            archive = ArchiveSummary.read(path, installation.public_key)
        except KitError as error:
            yield Finding("problem", str(error))
            continue
        needed, unpacked = needed + archive.memory, unpacked + archive.size
        yield from _archive_findings(name, file, archive)
    yield from _resource_findings(needed, unpacked)


def check_server(installation: Installation) -> Iterator[Finding]:
    """Check that the server answers the sample of each model, or that its ports are free."""
    server = running_server(installation.workdir)
    if isinstance(server, AsgiServer):
        yield from _asgi_findings(server)
        return
    if server is None:
        yield from _port_findings(installation.config)
        return
    yield Finding("ok", f"TorchServe runs at {server.inference_url} (process {server.pid}).")
    workers = server.workers()
    yield Finding("ok", f"{counted(len(workers), 'worker')}: {Memory.of_all(workers)}.")
    for model in server.models:
        yield _answer_of(server, model)


CHECKS: Sequence[Callable[[Installation], Iterator[Finding]]] = (
    check_packages,
    check_java,
    check_processor,
    check_limits,
    check_config,
    check_yamls,
    check_archives,
    check_server,
)


def _archive_findings(name: str, file: str, archive: ArchiveSummary) -> Iterator[Finding]:
    workers = archive.config.minWorkers
    if archive.config.continuousBatching and workers > 1:
        yield Finding(
            "problem",
            f"{file}: continuousBatching is true and minWorkers is {workers}; TorchServe serves"
            " such a model with one worker: set minWorkers and maxWorkers to 1.",
        )
    if archive.name != name:
        yield Finding(
            "problem",
            f"{file}: its manifest names the model {archive.name}; rename the file, or pack it"
            " again.",
        )
    elif archive.kit is None:
        yield Finding("advice", f"{file}: is not from the kit; it is served {archive.served}.")
    elif archive.kit != __version__:
        yield Finding(
            "advice",
            f"{file}: packed with version {archive.kit} of the kit, and this is"
            f" {__version__}; pack it again.",
        )
    elif not archive.has_sums:
        yield Finding("advice", f"{file}: has no SHA-256 sums; pack it again.")
    else:
        yield Finding("ok", f"{file}: all files have their sums.")


def _resource_findings(needed: int, unpacked: int) -> Iterator[Finding]:
    memory = memory_limit()
    if needed > memory:
        yield Finding(
            "problem",
            f"The workers of all archives need about {needed / GIB:.1f} GiB of memory, and there"
            f" are {memory / GIB:.1f}; serve fewer, with --models, or quantized ones.",
        )
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if unpacked > free:
        yield Finding(
            "problem",
            f"TorchServe unpacks {unpacked / GIB:.1f} GiB into {tempfile.gettempdir()}, where"
            f" {free / GIB:.1f} are free; set TMPDIR to a larger disk.",
        )


def _config_findings(settings: Mapping[str, str]) -> Iterator[Finding]:
    open_addresses = [
        key
        for key in ("inference_address", "management_address", "metrics_address")
        if not _is_local(settings.get(key, "http://127.0.0.1"))
    ]
    has_tokens = settings.get("disable_token_authorization", "false") != "true"
    if "management_address" in open_addresses:
        yield Finding(
            "problem",
            "management_address is reachable from other machines; whoever registers an archive"
            " runs code: set it to http://127.0.0.1:8081.",
        )
    if open_addresses and not has_tokens:
        yield Finding(
            "problem",
            f"{open_addresses[0]} is reachable from other machines without tokens; remove"
            " disable_token_authorization, or put a proxy in front of 127.0.0.1.",
        )
    if settings.get("enable_model_api") == "true" and not has_tokens:
        yield Finding(
            "problem",
            "enable_model_api is true without tokens, so every program of this machine can"
            " register an archive; remove disable_token_authorization.",
        )
    if settings.get("allowed_urls", "") in ("", "file://.*|http(s)?://.*"):
        yield Finding(
            "problem", "allowed_urls is not set, and allows every URL; set allowed_urls=none."
        )
    for key in ("install_py_dep_per_model", "enable_envvars_config"):
        if settings.get(key) == "true":
            yield Finding("advice", f"{key} is true; set it to false unless you need it.")


def _is_local(address: str) -> bool:
    return urlsplit(address).hostname in LOOPBACK


def _wrong_packages() -> Iterator[str]:
    try:
        required = map(Requirement, requires(DISTRIBUTION) or [])
    except PackageNotFoundError:
        yield f"{DISTRIBUTION} is not installed; run `make install`, or `pip install -e .`."
        return
    for each in required:
        if each.marker and not each.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(each.name)
        except PackageNotFoundError:
            yield f"{each.name} is not installed; run `pip install '{each}'`."
            continue
        if not each.specifier.contains(found, prereleases=True):
            yield f"{each.name} is {found}; run `pip install '{each}'`."


def _port_findings(config: Path) -> Iterator[Finding]:
    ports = Ports.of(read_properties(config)) if config.is_file() else Ports()
    try:
        ports.require_free()
    except PortInUse as error:
        yield Finding("problem", f"No server of this folder runs, and its port is taken. {error}")
    else:
        yield Finding("ok", "No server runs, and its ports are free.")


def _asgi_findings(server: AsgiServer) -> Iterator[Finding]:
    problems = server.problems()
    if problems:
        yield Finding("ok", f"A server without TorchServe runs at {server.inference_url}.")
    else:
        yield Finding("problem", f"{server.inference_url} does not answer; see {server.log}.")
    for name, problem in problems.items():
        yield (
            Finding("problem", f"{name}: {problem}")
            if problem
            else Finding("ok", f"{name}: ready.")
        )


def _answer_of(server: Server, model: str) -> Finding:
    """Return whether a model of the server answers its sample."""
    descriptions = server.describe(model)
    if not any(each["status"] == "READY" for found in descriptions for each in found["workers"]):
        reason = failures(server, [model]).get(model, "it may be loading still")
        return Finding(
            "problem",
            f"{model}: no worker is ready: {reason} (logs in {server.workdir / 'logs'}).",
        )
    if any(found.get("continuousBatching") for found in descriptions):
        return Finding("ok", f"{model}: a worker is ready.")
    sample = _sample_of(server, model)
    if sample is None:
        return Finding("ok", f"{model}: a worker is ready, and describes no sample.")
    url = f"{server.inference_url}/predictions/{model}"
    headers = server.credentials("inference")
    try:
        answer = httpx.post(url, json=sample, headers=headers, timeout=60, trust_env=False)
    except httpx.TransportError as error:
        return Finding("problem", f"{model}: does not answer ({error}); read the logs.")
    if answer.is_error:
        return Finding(
            "problem",
            f"{model}: answers its sample with status {answer.status_code}; read the logs.",
        )
    seconds = answer.elapsed.total_seconds()
    return Finding("ok", f"{model}: answers its sample in {1000 * seconds:.0f} ms.")


def _sample_of(server: Server, model: str) -> Any:
    url = f"{server.management_url}/models/{model}"
    headers = server.credentials("management")
    options: dict[str, Any] = {"params": {"customized": "true"}, "timeout": 60}
    try:
        (found,) = httpx.get(url, headers=headers, trust_env=False, **options).json()
    except (httpx.TransportError, ValueError):
        return None
    return (found.get("customizedMetadata") or {}).get("sample")


run = partial(typer.run, main)

if __name__ == "__main__":
    run()
