"""One model in its own process, for the server at one URL: `python model_process.py OPTIONS`.

OPTIONS is JSON of :class:`ProcessOptions`. The process answers at the Unix socket that is its
standard input, and writes its id to its standard output before it loads the model. Where the fork
server starts it, the packages of the kit are imported already.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ == "__main__":  # Not from the folder of this file, whose modules have common names.
    sys.path[0] = str(Path(__file__).absolute().parents[3])

from hf_serve.hosts.archives import Archive, import_from
from hf_serve.hosts.asgi.served_files import ServedFiles
from hf_serve.hosts.command_line import plain_errors
from hf_serve.hosts.defaults import LOG_FORMAT


@dataclass(frozen=True)
class ProcessOptions:
    """What a model process serves.

    Attributes:
        folder: the unpacked archive.
        name: the name of the model.
        version: its version.
        sharing: how many processes share the cores.
        max_request_bytes: the limit of the body of a request.
        max_response_bytes: the limit of the body of a response.
    """

    folder: str
    name: str
    version: str
    sharing: int
    max_request_bytes: int
    max_response_bytes: int

    def to_json(self) -> str:
        """Return the options as the argument of the process."""
        return json.dumps(asdict(self))


@plain_errors()
def main(options: ProcessOptions) -> None:
    """Load the model, and answer requests until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    os.write(sys.stdout.fileno(), f"{os.getpid()}\n".encode())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    folder = Path(options.folder)
    if "handlers" not in sys.modules:  # The fork server has imported the same ones.
        import_from(folder)
    # These import the `handlers` of the archive.
    from hf_serve.handlers.http.limits import BodyLimits  # noqa: PLC0415
    from hf_serve.hosts.archive_handlers import release_memory, set_num_threads  # noqa: PLC0415
    from hf_serve.hosts.asgi.access import ApiKeys  # noqa: PLC0415
    from hf_serve.hosts.asgi.in_process import InProcessBackend  # noqa: PLC0415
    from hf_serve.hosts.asgi.server import ServerSettings, serve  # noqa: PLC0415

    set_num_threads(options.sharing)
    archive = Archive(folder, options.name, options.version, "")
    limits = BodyLimits(options.max_request_bytes, options.max_response_bytes)
    backend = InProcessBackend(ServedFiles([folder], options.name), archive, limits)
    backend.load_all()
    release_memory()
    settings = ServerSettings(
        host="",
        port=0,
        grace_seconds=60,
        max_request_bytes=options.max_request_bytes,
        keys=ApiKeys(()),
        descriptor=sys.stdin.fileno(),
    )
    serve(backend, settings)


if __name__ == "__main__":
    main(ProcessOptions(**json.loads(sys.argv[1])))
