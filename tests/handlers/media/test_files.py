"""Files in requests: how they may come, and what is refused."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpcore
import pytest

from hf_serve.handlers.errors import BadRequest, RequestError, RequestTooLarge, Unprocessable
from hf_serve.handlers.media.files import (
    MediaFiles,
    RemoteFile,
    RemoteFiles,
    addresses_of,
    connect,
    is_public,
)
from hf_serve.handlers.media.images import IMAGE
from tests.sentences import Sentence, refused

LIMIT = 100_000
FILES = MediaFiles(IMAGE, LIMIT, [], 1)


def test_bytes_come_as_they_are_in_base64_or_in_a_data_uri() -> None:
    file = b"\x89PNG and more"
    text = base64.b64encode(file).decode()
    lines = "\n".join(text[start : start + 60] for start in range(0, len(text), 60))
    uri = f"data:image/png;base64,{text}"
    for value in (file, bytearray(file), text, lines, uri, {"image": uri}, {"b64": text}):
        assert FILES.file(value, "inputs") == file


@pytest.mark.parametrize(
    ("value", "error", "facts"),
    [
        ("https://example.com/cat.png", Unprocessable, ["inputs", "URL"]),
        ("file:///etc/passwd", Unprocessable, ["inputs", "URL"]),
        ("data:image/png,abc", BadRequest, ["inputs", "data URI", "base64"]),
        ("not base64!", BadRequest, ["inputs", "base64"]),
        ("", BadRequest, ["inputs"]),
        (b"", BadRequest, ["inputs"]),
        (5, BadRequest, ["inputs", "image"]),
        ({"url": "x"}, BadRequest, ["inputs", "image"]),
        (b"x" * (LIMIT + 1), RequestTooLarge, ["inputs", LIMIT + 1]),
    ],
)
def test_what_is_no_image_is_refused(
    value: Any, error: type[RequestError], facts: list[object]
) -> None:
    with refused(error, *facts):
        FILES.file(value, "inputs")


REMOTE_LIMIT = 10_000
CAT = b"the bytes of a cat"
PUBLIC = "93.184.216.34"
NAMES = {
    "images.example.com": [PUBLIC],
    "cdn.example.com": [PUBLIC],
    "half.example.com": [PUBLIC, "10.0.0.1"],
    "inside.example.com": ["192.168.1.1"],
    "metadata.example.com": ["169.254.169.254"],
    "none.example.com": [],
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kind, _, rest = self.path.lstrip("/").partition("/")
        if kind == "to":
            self.send_response(302)
            self.send_header("Location", rest)
            self.end_headers()
        elif kind == "slowly":
            self.send_response(200)
            self.end_headers()
            # It ends when the client has gone.
            while True:
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.05)
        elif kind == "large":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * (REMOTE_LIMIT + 1))
        elif kind == "cat":
            self.send_response(200)
            self.send_header("Content-Length", str(len(CAT)))
            self.end_headers()
            self.wfile.write(CAT)
        else:
            self.send_error(404)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    _Handler.protocol_version = "HTTP/1.0"
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class _Network:
    """Resolves the names above, and connects to the server in place of public addresses."""

    def __init__(self, port: int) -> None:
        self.port, self.connected = port, list[str]()

    def resolve(self, host: str, port: int) -> Sequence[str]:
        return NAMES.get(host, [host])

    def connect(self, address: str, port: int, timeout: float) -> httpcore.NetworkStream:
        self.connected.append(address)
        return connect("127.0.0.1", self.port, timeout)


@pytest.fixture
def network(port: int) -> _Network:
    return _Network(port)


def _files(network: _Network, *hosts: str, timeout: float = 5.0) -> RemoteFiles:
    return RemoteFiles(
        hosts or ("*.example.com",), timeout, REMOTE_LIMIT, network.resolve, network.connect
    )


def _fetch(files: RemoteFiles, url: str) -> bytes | RequestError:
    (found,) = files.fetch_all([files.allow(url, "inputs")])
    return found


def test_a_file_of_an_allowed_host_is_fetched(network: _Network) -> None:
    assert _fetch(_files(network), "http://images.example.com/cat") == CAT
    assert network.connected == [PUBLIC]


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        (["images.example.com"], "http://IMAGES.example.com/cat"),
        (["*.example.com"], "https://a.b.example.com/cat"),
        (["example.com:8443"], "https://example.com:8443/cat"),
    ],
)
def test_hosts_of_the_yaml_are_allowed(network: _Network, hosts: list[str], url: str) -> None:
    assert _files(network, *hosts).allow(url, "inputs") == RemoteFile(url, "inputs")


@pytest.mark.parametrize(
    ("url", "facts"),
    [
        ("http://images.example.com.evil.test/cat", ["images.example.com.evil.test"]),
        ("http://example.com/cat", ["example.com"]),
        ("http://images.example.com:8080/cat", ["images.example.com:8080"]),
        ("http://images.example.com@evil.test/cat", ["URL"]),
        ("http://evil.test#images.example.com", ["evil.test"]),
        ("file:///etc/passwd", ["URL"]),
        ("ftp://images.example.com/cat", ["URL"]),
        ("http://images.example.com:port/cat", ["URL"]),
        ("http://[::1/cat", ["URL"]),
        ("http://images.example.com/a cat", ["URL"]),
        ("http://images.example.com/cat\r\nHost: evil", ["URL"]),
    ],
)
def test_other_urls_are_refused(network: _Network, url: str, facts: list[str]) -> None:
    with refused(Unprocessable, *facts):
        _files(network).allow(url, "inputs")
    assert network.connected == []


def test_without_hosts_no_url_is_fetched(network: _Network) -> None:
    files = RemoteFiles([], 1, REMOTE_LIMIT, network.resolve, network.connect)
    with refused(Unprocessable, "allowed_media_hosts"):
        files.allow("http://images.example.com/cat", "inputs")


@pytest.mark.parametrize(
    "url",
    [
        "http://half.example.com/cat",
        "http://inside.example.com/cat",
        "http://metadata.example.com/latest/meta-data",
        "http://none.example.com/cat",
        "http://images.example.com/to/http://inside.example.com/cat",
        "http://images.example.com/to/http://images.example.com/to/http://half.example.com/cat",
    ],
)
def test_addresses_that_are_not_public_are_never_reached(network: _Network, url: str) -> None:
    found = _fetch(_files(network), url)
    assert isinstance(found, Unprocessable)
    assert str(found) == Sentence("inputs", "URL")
    assert set(network.connected) <= {PUBLIC}


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "2130706433", "0x7f000001", "localhost"])
def test_loopback_is_never_reached_though_it_is_listed(host: str) -> None:
    files = RemoteFiles([host.strip("[]")], 2, REMOTE_LIMIT)
    found = _fetch(files, f"http://{host}/")
    assert isinstance(found, Unprocessable)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("192.0.0.192", False),
        ("192.88.99.1", False),
        ("168.63.129.16", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("ff02::1", False),
        ("2001::1", False),
        ("3fff::1", False),
        ("64:ff9b:1::a00:1", False),
        ("::7f00:1", False),
        ("fec0::1", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_a_host_is_reached_at_the_first_of_its_addresses_that_answers(network: _Network) -> None:
    first, second = "2606:2800:220:1:248:1893:25c8:1946", PUBLIC

    def connect_to(address: str, port: int, timeout: float) -> httpcore.NetworkStream:
        if address == first:
            raise httpcore.ConnectError
        return network.connect(address, port, timeout)

    files = RemoteFiles(["*.example.com"], 5, REMOTE_LIMIT, lambda *_: [first, second], connect_to)
    assert _fetch(files, "http://images.example.com/cat") == CAT


def test_redirects_are_followed_to_allowed_hosts_only(network: _Network) -> None:
    to = "http://images.example.com/to/"
    assert _fetch(_files(network), f"{to}http://cdn.example.com/cat") == CAT
    assert _fetch(_files(network), f"{to}/cat") == CAT
    other = _fetch(_files(network), f"{to}http://evil.test/cat")
    assert isinstance(other, Unprocessable)
    assert "not one that this model fetches from" in str(other)
    again = _fetch(_files(network), f"{to}{to}{to}{to}http://cdn.example.com/cat")
    assert "redirects more than 3 times" in str(again)


@pytest.mark.parametrize(
    "url",
    [
        "http://images.example.com/to/http://[::1",
        "http://images.example.com/to/http://a..example.com/cat",
        "http://a..example.com/cat",
        f"http://{'a' * 64}.example.com/cat",
    ],
)
def test_a_url_that_no_resolver_reads_is_refused(network: _Network, url: str) -> None:
    def resolve(host: str, port: int) -> Sequence[str]:
        return NAMES.get(host) or addresses_of(host, port)

    files = RemoteFiles(["*.example.com"], 5, REMOTE_LIMIT, resolve, network.connect)
    found = _fetch(files, url)
    assert isinstance(found, Unprocessable)
    assert str(found) == Sentence("inputs", "URL")


def test_a_server_that_sends_slowly_is_left_after_the_time_limit(network: _Network) -> None:
    files = _files(network, timeout=2)
    slow, good = files.fetch_all(
        [
            files.allow("http://images.example.com/slowly", "first"),
            files.allow("http://images.example.com/cat", "second"),
        ]
    )
    assert str(slow) == Sentence("first", "URL")
    assert good == CAT


def test_a_resolver_that_hangs_does_not_keep_the_batch(network: _Network) -> None:
    hangs = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        hangs.wait(10)
        return [PUBLIC]

    files = RemoteFiles(["*.example.com"], 0.3, REMOTE_LIMIT, resolve, network.connect)
    found = _fetch(files, "http://images.example.com/cat")
    hangs.set()
    assert str(found) == Sentence("inputs", 0.3)


def test_a_large_file_is_refused_while_it_comes(network: _Network) -> None:
    found = _fetch(_files(network), "http://images.example.com/large")
    assert isinstance(found, RequestTooLarge)
    assert "more than the 10,000 bytes" in str(found)


@pytest.mark.parametrize(("limit", "is_fetched"), [(len(CAT), True), (len(CAT) - 1, False)])
def test_a_file_may_be_as_large_as_the_limit(
    network: _Network, limit: int, is_fetched: bool
) -> None:
    files = RemoteFiles(["*.example.com"], 30, limit, network.resolve, network.connect)
    assert (_fetch(files, "http://images.example.com/cat") == CAT) is is_fetched


def test_a_file_that_is_missing_is_refused_and_others_are_fetched(network: _Network) -> None:
    files = _files(network)
    missing, own, good = files.fetch_all(
        [
            files.allow("http://images.example.com/nothing", "inputs"),
            b"bytes of the request",
            files.allow("http://images.example.com/cat", "inputs"),
        ]
    )
    assert "answers with status 404" in str(missing)
    assert (own, good) == (b"bytes of the request", CAT)
