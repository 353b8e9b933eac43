"""Ray and Ray Serve on this machine: `python -m hf_serve.hosts.ray_serve.local`.

They listen on the loopback interface. The process reads its settings as JSON from the standard
input, and runs until SIGTERM. Every process of Ray ends with it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from hf_serve.hosts.archives import open_archive
from hf_serve.hosts.compat.ray import start
from hf_serve.hosts.ray_environment import NAMESPACE, import_ray

ROUTES = "routes"


class LocalSettings(BaseModel):
    """What the process is started with.

    Attributes:
        num_cpus: the cores that Ray schedules replicas on.
        object_store_bytes: shared memory for large requests and responses.
        folder: the folder of Ray's sockets and logs; its path must be short.
        state: the file that is written once every model answers.
        public_key: the key that archives must be signed with; None for any archives. The commands
            check it before they pass archives on.
    """

    model_config = ConfigDict(extra="forbid")

    archives: list[Path]
    port: int
    num_cpus: int
    object_store_bytes: int
    max_request_bytes: int
    max_response_bytes: int
    folder: Path
    state: Path
    public_key: Path | None = None


def main() -> None:
    """Start Ray, serve the archives, and stay until SIGTERM."""
    settings = LocalSettings.model_validate_json(sys.stdin.read())
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ray = import_ray(local=True)
    from ray import serve  # noqa: PLC0415

    address = start(
        ray,
        settings.folder,
        namespace=NAMESPACE,
        num_cpus=settings.num_cpus,
        object_store_bytes=settings.object_store_bytes,
    )
    serve.start(
        proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": settings.port}
    )
    deploy(settings.archives, settings)
    settings.state.write_text(json.dumps({"address": address}), encoding="utf-8")
    ended.wait()
    serve.shutdown()
    ray.shutdown()


def deploy(archives: Sequence[Path], settings: LocalSettings) -> None:
    """Serve archives on the Ray that this process is connected to, and return once they answer.

    An archive of a model that is served replaces it: its replicas end when the new replicas
    answer, and have answered the requests that they have.
    """
    from ray import serve  # noqa: PLC0415
    from ray.serve.api import RunTarget  # noqa: PLC0415

    from hf_serve.hosts.ray_serve.application import ModelArgs, RoutesArgs, model, routes  # noqa: PLC0415

    targets = [
        RunTarget(
            model(
                ModelArgs(
                    archive=path,
                    # Replicas share the cores, as TorchServe's workers do, and reserve none.
                    num_cpus=0,
                    max_request_bytes=settings.max_request_bytes,
                    max_response_bytes=settings.max_response_bytes,
                )
            ),
            open_archive(path).name,
            route_prefix=None,
        )
        for path in archives
    ]
    if ROUTES not in serve.status().applications:
        application = routes(RoutesArgs(max_request_bytes=settings.max_request_bytes))
        targets.append(RunTarget(application, ROUTES, route_prefix="/"))
    serve.run_many(targets)


if __name__ == "__main__":
    main()
