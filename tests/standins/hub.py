"""A model hub on 127.0.0.1: serves folders as repositories, as far as downloads ask for it.

    with LocalHub({"org/name": folder}) as hub:
        subprocess.run([...], env={**os.environ, "HF_ENDPOINT": hub.url})

huggingface_hub reads HF_ENDPOINT when it is imported, so a script runs in a process of its own; in
the same process give its functions `endpoint=hub.url`.

Routes: `/api/models/{id}[/revision/{revision}]`, `/api/models/{id}/tree/{revision}` and
`/{id}/resolve/{revision}/{file}`, the last with HEAD and with ranges. A revision is `main`, a
commit or its first 7 digits. What is not there answers 404 and a gated model 401, each with the
hub's own `X-Error-Code`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.standins.hub_routes import Asked, Cut, Routes
from tests.standins.repository import Repository

POLL = 0.02  # seconds; how long `with LocalHub` may take to end


class LocalHub:
    """The server; `url` is its HF_ENDPOINT and `log` every request so far, oldest first."""

    def __init__(self, repositories: Mapping[str, Path]) -> None:
        self.repositories: dict[str, Repository] = {}
        self.log: list[Asked] = []
        self.cuts: list[Cut] = []
        self.fixed_answer: tuple[int, bytes] | None = None
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
        """Where it listens; to be given as HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def push(self, name: str, folder: Path) -> str:
        """Add a folder as a repository's newest commit; returns the commit's hash."""
        return self.repositories.setdefault(name, Repository()).push(folder)

    def tag(self, name: str, revision: str) -> None:
        """Let a revision mean a repository's newest commit."""
        repository = self.repositories[name]
        repository.tags[revision] = next(reversed(repository.commits))

    def gate(self, name: str) -> None:
        """Refuse a repository's files from now on, as the hub does with gated models."""
        self.repositories[name].gated = True

    def cut(self, file: str, after: int, *, times: int = 1, stall: bool = False) -> None:
        """Lose the connection after so many bytes of a file, or send nothing more on it."""
        self.cuts.append(Cut(file, after, times, stall))

    def answer_everything(self, status: int, body: bytes) -> None:
        """Give every request the same answer, as a server does that is ill or is no hub."""
        self.fixed_answer = status, body

    def asked(self, file: str, method: str = "GET") -> list[Asked]:
        """Return the requests for a file."""
        return [
            seen for seen in self.log if seen.method == method and seen.path.endswith(f"/{file}")
        ]

    def next_cut(self, file: str) -> Cut | None:
        """Use up one cut of a file, if there is any."""
        for cut in self.cuts:
            if cut.file == file and cut.times:
                cut.times -= 1
                return cut
        return None
