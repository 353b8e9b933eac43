"""A model hub on 127.0.0.1: serves folders as repositories, with the routes of downloads.

    with LocalHub({"org/name": folder}) as hub:
        subprocess.run([...], env={**os.environ, "HF_ENDPOINT": hub.url})

huggingface_hub reads HF_ENDPOINT when it is imported, so a script runs in its own process; in
the same process pass `endpoint=hub.url` to its functions.

Routes: `/api/models/{id}[/revision/{revision}]`, `/api/models/{id}/tree/{revision}` and
`/{id}/resolve/{revision}/{file}`, the last with HEAD and with ranges. A revision is `main`, a
commit or its first 7 digits. A missing file gets 404 and a gated model 401, each with the
hub's own `X-Error-Code`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.standins.hub_routes import Interruption, LoggedRequest, Routes
from tests.standins.repository import Repository

POLL = 0.02  # seconds; how often the server looks whether it is to end


class LocalHub:
    """The server; `url` is its HF_ENDPOINT.

    `log` has every request so far, oldest first, and `sent` each file that was sent to its end.
    """

    def __init__(self, repositories: Mapping[str, Path]) -> None:
        self.repositories: dict[str, Repository] = {}
        self.log: list[LoggedRequest] = []
        self.interruptions: list[Interruption] = []
        self.fixed_answer: tuple[int, bytes, dict[str, str]] | None = None
        self.sent: list[str] = []
        self.closing = threading.Event()
        for name, folder in repositories.items():
            self.push(name, folder)
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Bound", (Routes,), {"hub": self})
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL,), daemon=True
        )

    def __enter__(self) -> LocalHub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The address, for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def push(self, name: str, folder: Path) -> str:
        """Add a folder as a repository's newest commit; returns the commit's hash."""
        return self.repositories.setdefault(name, Repository()).push(folder)

    def tag(self, name: str, revision: str) -> None:
        """Point a revision to a repository's newest commit."""
        repository = self.repositories[name]
        repository.tags[revision] = next(reversed(repository.commits))

    def gate(self, name: str) -> None:
        """Refuse a repository's files from now on, as the hub does with gated models."""
        self.repositories[name].gated = True

    def interrupt(self, file: str, after: int, *, times: int = 1, stall: bool = False) -> None:
        """Close the connection after `after` bytes of a file, or send no more on it."""
        self.interruptions.append(Interruption(file, after, times, stall))

    def answer_everything(self, status: int, body: bytes, **headers: str) -> None:
        """Give every request the same answer, as a failing server does, or one that is no hub."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.fixed_answer = status, body, named

    def requests(self, file: str, method: str = "GET") -> list[LoggedRequest]:
        """Return the requests for a file."""
        return [
            each for each in self.log if each.method == method and each.path.endswith(f"/{file}")
        ]

    def next_interruption(self, file: str) -> Interruption | None:
        """Return the next interruption of a file, and count it down; None if there is none."""
        for each in self.interruptions:
            if each.file == file and each.times:
                each.times -= 1
                return each
        return None
