"""The pages of the documentation and the examples in them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.scripts.installation import ROOT

DOCS = ROOT / "docs"
OWN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*OWN, *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)(?: title=\"(.*?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A replacement of curl that prints its arguments, and a separator after them.
STUB = "curl() { printf '%s\\0' \"$@\"; printf '\\1\\0'; }\n"
INFERENCE, MANAGEMENT, ONE_URL = 8080, 8081, 8000
# Options of curl without a value, and those whose value is not used here.
BARE, UNUSED = (
    {"--retry-all-errors", "--fail", "-s", "-i"},
    {"--retry", "--retry-delay", "-o", "-w"},
)
# Models of the pages that are not named after their mode.
MODES = {
    "final": "sequence_classification",
    "html": "sequence_classification",
    "sentiment": "sequence_classification",
    "vectors": "sentence_embedding",
}
PATH = re.compile(r"/(predictions|explanations)/(?P<model>[^/]+)(?:/[^/]+)?(?:/(?P<path>.*))?")
MODEL = re.compile(r"(/v[12])?/models/(?P<model>[^/:]+)(?P<end>[/:]\w+)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `after` is the block before it."""

    page: Path
    language: str
    title: str
    text: str
    after: Block | None = field(default=None, repr=False)

    def __str__(self) -> str:
        first = re.sub(r"\W+", "-", self.text.strip().splitlines()[0])[:40]
        return f"{self.page.relative_to(ROOT)}-{first}"


@dataclass(frozen=True)
class Call:
    """A curl command: the model's mode, and the request as TorchServe passes it on."""

    mode: str
    http_request: HttpRequest


def blocks(language: str) -> list[Block]:
    """Return the blocks of a language on all pages."""
    return [block for page in PAGES for block in blocks_of(page) if block.language == language]


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    before = None
    for language, title, text in FENCE.findall(page.read_text(encoding="utf-8")):
        before = Block(page, language, title, text, before)
        yield before


def calls(block: Block) -> list[Call]:
    """Return the requests of a block of curl commands to a model."""
    done = subprocess.run(["bash", "-c", STUB + block.text], capture_output=True, check=True)
    commands = done.stdout.decode().split("\1\0")[:-1]
    found = (_call(command.split("\0")[:-1]) for command in commands)
    return [call for call in found if call]


def _call(arguments: list[str]) -> Call | None:
    url, headers, fields, body = "", {"host": "127.0.0.1"}, {}, None
    rest = iter(arguments)
    for argument in rest:
        if argument.startswith("http"):
            url = argument
        elif argument in BARE:
            continue
        elif argument == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name.lower()] = value
        elif argument in ("-d", "--data-binary"):
            body = next(rest).encode()
        elif argument == "-T":
            body = (ROOT / next(rest)).read_bytes()
        elif argument == "-F":
            name, _, value = next(rest).partition("=")
            is_file = value.startswith("@")
            fields[name] = (ROOT / value[1:]).read_bytes() if is_file else value.encode()
        elif argument in UNUSED:
            next(rest)
        else:
            raise AssertionError(f"{argument} of curl is not known here")
    return _routed(url, headers, fields or {"body": _decoded(headers, body)})


def _decoded(headers: dict[str, str], body: bytes | None) -> Any:
    """Return a body as TorchServe passes it on: it reads JSON and texts itself."""
    kind = headers.get("content-type", "")
    if body is None:
        return ""
    if kind == "application/json":
        return json.loads(body)
    return body.decode() if kind.startswith("text/") else body


def _routed(url: str, headers: dict[str, str], row: dict[str, Any]) -> Call | None:
    parts = urlsplit(url)
    if parts.port == MANAGEMENT:
        return Call(_mode(parts.path.rsplit("/", 1)[1]), HttpRequest({}, {"describe": "True"}))
    if parts.port == ONE_URL and not PATH.fullmatch(parts.path):
        content = row["body"]
        if not isinstance(content, dict):
            return None
        if model := headers.get("x-model") or content.get("model"):
            headers |= {"url_path": parts.path.strip("/")}
            return Call(_mode(model), HttpRequest(row, headers))
    elif parts.port not in (INFERENCE, ONE_URL):
        return None
    row |= dict(parse_qsl(parts.query))
    if found := PATH.fullmatch(parts.path):
        explains = parts.path.startswith("/explanations")
        headers |= {"url_path": found["path"] or "", "explain": str(explains)}
    elif found := MODEL.fullmatch(parts.path):
        headers |= {"url_path": "", "explain": str(found["end"].endswith("explain"))}
    assert found, f"there is no route {parts.path}"
    return Call(_mode(found["model"]), HttpRequest(row, headers))


def _mode(model: str) -> str:
    return MODES.get(model, model)
