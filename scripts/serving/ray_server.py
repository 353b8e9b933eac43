"""Ray Serve on this machine, in the background."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

from handlers.http.limits import BodyLimits
from hosts.ray_serve.local import LocalSettings
from scripts.serving.background import CONSOLE, BackgroundServer
from scripts.serving.ports import require_free

READY_FILE = "ready.json"


class RayServer(BackgroundServer):
    """A running Ray Serve, whose processes end with the one that started it."""

    title: ClassVar[str] = "Ray Serve"
    script: ClassVar[str] = "scripts/serve_ray.py"
    state_file: ClassVar[str] = "ray_server.json"

    @property
    def scratch(self) -> Path:
        """The folder of Ray's sockets and logs, removed when the server stops."""
        return Path(self.settings["folder"])

    @property
    def log(self) -> Path:
        return self.scratch

    @property
    def address(self) -> str:
        """The address of Ray, for `ray.init`."""
        state = json.loads((self.workdir / READY_FILE).read_text(encoding="utf-8"))
        return str(state["address"])

    def is_ready(self) -> bool:
        return (self.workdir / READY_FILE).is_file()

    def model_names(self) -> list[str]:
        return [each["modelName"] for each in self.get("/models").json()["models"]]

    def logs(self) -> str:
        """Return what the processes of Ray have logged."""
        files = [*self.workdir.glob(CONSOLE), *self.scratch.glob("session_*/logs/**/*")]
        texts = (
            path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(files)
            if path.is_file() and not path.is_symlink()
        )
        return "".join(texts)

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self.workdir / READY_FILE).unlink(missing_ok=True)


def start_ray_server(
    archives: list[Path],
    workdir: Path,
    port: int,
    limits: BodyLimits,
    *,
    public_key: Path | None = None,
    timeout: float = 300.0,
    object_store_bytes: int = 200 << 20,
) -> RayServer:
    """Start Ray Serve with archives, and return once every model answers.

    Raises:
        PortInUse: the port is in use.
        BackgroundServerFailed: a model does not load, or not in time; the server is stopped.
    """
    require_free(port)
    workdir = workdir.resolve()
    (workdir / READY_FILE).unlink(missing_ok=True)
    settings = LocalSettings(
        archives=archives,
        port=port,
        num_cpus=os.cpu_count() or 1,
        object_store_bytes=object_store_bytes,
        max_request_bytes=limits.max_request_bytes,
        max_response_bytes=limits.max_response_bytes,
        # Not in the work folder: the path of the Unix sockets in it must be short.
        folder=Path(tempfile.mkdtemp(prefix="ray-")),
        state=workdir / READY_FILE,
        public_key=public_key and public_key.resolve(),
    )
    return RayServer.start(
        ["-m", "hosts.ray_serve.local"],
        workdir,
        settings.model_dump(mode="json"),
        timeout,
        settings.model_dump_json(),
    )
