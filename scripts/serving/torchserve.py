"""Start TorchServe with a separate work folder, ports and process group."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Literal

from handlers.runtime.integrity import DamagedArchive, UntrustedArchive
from scripts.archives.model_store import list_archives, why_unreadable
from scripts.paths import MODEL_STORE, ROOT
from scripts.serving.fork_server import start as fork_server
from scripts.serving.fork_server.start import LOG_FILE, ForkServer
from scripts.serving.java import java_home
from scripts.serving.ports import Ports, free_ports
from scripts.serving.processes import started_at
from scripts.serving.properties import escape, read_properties, write_properties
from scripts.serving.readiness import ModelsFailed, start_seconds, wait_until_ready
from scripts.serving.server import Server
from scripts.serving.server_command import LOGGING, server_command, server_environment
from scripts.serving.tokens import KEY_FILE


@dataclass
class TorchServe:
    """A TorchServe to start: `with TorchServe(workdir, model_store=...) as server: ...`.

    Attributes:
        workdir: folder for the settings and, in `logs/`, the logs; the logs of the previous start
            are kept in `logs.before/`.
        model_store: the folder of the archives.
        models: `"all"`, or archive file names by model name.
        ports: the ports of the server; free ports by default.
        config: the config.properties to start from.
        config_overrides: settings that replace those of the file.
        timeout: seconds until every model must be ready; None for what they may take on a busy
            machine: more for more models on fewer cores.
        console: whether to log to the output of this process as well.
        log_config: the log settings: `log4j2.xml`, or `log4j2-json.xml` for lines of JSON.
        fork_server: whether workers are forked from a process that has imported their packages.
        public_key: the key that archives must be signed with; TorchServe then finds only what was
            unpacked of archives that are.
        on_ready: called with the name of each model and the seconds it took to load.
        on_failed: called with the name of each model that does not load and the reason, and the
            others are served; None where all of them have to load.
    """

    workdir: Path
    model_store: Path = MODEL_STORE
    models: Mapping[str, str] | Literal["all"] = "all"
    ports: Ports = field(default_factory=free_ports)
    config: Path = ROOT / "config.properties"
    config_overrides: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    console: bool = False
    log_config: Path = LOGGING
    fork_server: bool = field(default_factory=fork_server.is_on)
    public_key: Path | None = None
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
        server = Server(0, 0.0, dict(models), self.ports, workdir, scratch, key)
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
