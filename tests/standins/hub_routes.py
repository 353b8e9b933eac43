"""The routes of the local hub: one method for each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

from tests.standins.repository import Repository, StoredFile

if TYPE_CHECKING:
    from tests.standins.hub import LocalHub

FILE = re.compile(r"/(?P<model>.+?)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
TREE = re.compile(r"/api/models/(?P<model>.+?)/tree/(?P<revision>[^/]+)")
MODEL = re.compile(r"/api/models/(?P<model>.+?)(?:/revision/(?P<revision>[^/]+))?")


class LoggedRequest(NamedTuple):
    """A received request; `range` is its Range header, "" without one."""

    method: str
    path: str
    range: str = ""


@dataclass
class Interruption:
    """The next `times` downloads of a file end after `after` bytes, or stall."""

    file: str
    after: int
    times: int = 1
    stall: bool = False


class Refused(Exception):
    """A request that gets an error status with the hub's own code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class Routes(BaseHTTPRequestHandler):
    """One connection to the local hub."""

    hub: ClassVar[LocalHub]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Answer with headers alone."""
        self._route()

    def do_GET(self) -> None:
        """Answer with a body."""
        self._route()

    def log_message(self, *_: Any) -> None:
        """Do not print; `LocalHub.log` has every request."""

    def _route(self) -> None:
        path = urlsplit(self.path).path
        self.hub.log.append(
            LoggedRequest(self.command, unquote(path), self.headers.get("Range", ""))
        )
        try:
            self._answer(path)
        except Refused as refusal:
            self._send(refusal.status, b"", {"X-Error-Code": refusal.code})

    def _answer(self, path: str) -> None:
        if self.hub.fixed_answer:
            self._send(*self.hub.fixed_answer)
        elif found := FILE.fullmatch(path):
            self._send_file(**_words(found))
        elif found := TREE.fullmatch(path) or MODEL.fullmatch(path):
            self._send_listing(tree="/tree/" in path, **_words(found))
        else:
            raise Refused(404, "RepoNotFound")

    def _send_listing(self, model: str, revision: str, *, tree: bool) -> None:
        repository, commit = self._find(model, revision)
        files = repository.commits[commit].values()
        answer: Any = {
            "id": model,
            "sha": commit,
            "pipeline_tag": repository.hub_task(commit),
            "siblings": [file.as_sibling() for file in files],
        }
        if tree:
            answer = [file.as_tree_entry() for file in files]
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _send_file(self, model: str, revision: str, file: str) -> None:
        repository, commit = self._find(model, revision)
        if repository.gated:
            raise Refused(401, "GatedRepo")
        if file not in repository.commits[commit]:
            raise Refused(404, "EntryNotFound")
        self._send_content(repository.commits[commit][file], commit)

    def _send_content(self, file: StoredFile, commit: str) -> None:
        requested = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(requested[1]) if requested else 0
        headers = {
            "ETag": f'"{file.etag}"',
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(file.size),
            "X-Linked-Etag": f'"{file.etag}"',
            "Accept-Ranges": "bytes",
        }
        if start > file.size:
            raise Refused(416, "RangeNotSatisfiable")
        if requested:
            headers["Content-Range"] = f"bytes {start}-{file.size - 1}/{file.size}"
        self._send(206 if requested else 200, file.path.read_bytes()[start:], headers, file.name)

    def _send(self, status: int, body: bytes, headers: dict[str, str], file: str = "") -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        interruption = self.hub.next_interruption(file)
        try:
            self.wfile.write(body[: interruption.after] if interruption else body)
        except ConnectionError:  # The client has seen enough.
            self.close_connection = True
            return
        self.hub.sent.append(file)
        if interruption and interruption.stall:
            self.hub.closing.wait()
        self.close_connection = self.close_connection or interruption is not None

    def _find(self, model: str, revision: str) -> tuple[Repository, str]:
        repository = self.hub.repositories.get(model)
        if repository is None:
            raise Refused(404, "RepoNotFound")
        commit = repository.resolve(revision)
        if commit is None:
            raise Refused(404, "RevisionNotFound")
        return repository, commit


def _words(found: re.Match[str]) -> dict[str, str]:
    return {name: unquote(word or "main") for name, word in found.groupdict().items()}
