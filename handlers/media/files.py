"""Files in requests: bytes, base64, data URIs, and URLs of hosts that are allowed."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import httpcore

from ..config.messages import check_single, quote
from ..errors import BadRequest, RequestError, RequestTooLarge, Unprocessable, attempt

URL = re.compile(r"(?i)[a-z][a-z0-9+.-]*://")
DATA_URI = re.compile(r"(?i)data:(?P<type>[^,;]{0,100})(?P<options>(;[^,;]{0,100}){0,5}),")
SPACES = re.compile(r"[ \t\r\n]+")
# A data URI has a few characters before its base64, which may be broken into lines.
URI_CHARACTERS = 200
VISIBLE = re.compile("[!-~]+")
PORTS = {"http": 80, "https": 443}
MAX_REDIRECTS = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Files of a batch that are fetched at once; further ones wait.
MAX_CONNECTIONS = 16
# Translates IPv4 addresses to IPv6, https://www.rfc-editor.org/rfc/rfc6052#section-2.1
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Global addresses for `ipaddress` of some versions of Python, and services of clouds for their own
# machines: https://www.iana.org/assignments/iana-ipv4-special-registry and the one for IPv6.
NOT_PUBLIC = tuple(
    ipaddress.ip_network(each)
    for each in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20")
)
HEADERS = [("User-Agent", "hf-serve"), ("Accept", "*/*"), ("Accept-Encoding", "identity")]

Resolve = Callable[[str, int], Sequence[str]]
Connect = Callable[[str, int, float], httpcore.NetworkStream]


@dataclass(frozen=True)
class MediaType:
    """What kind of file a request has.

    Attributes:
        noun: what it is, with an article: `an image`.
        key: the key of an object with the file, beside `b64`.
        expected: what to send, as the end of an error's sentence.
    """

    noun: str
    key: str
    expected: str


class MediaFiles:
    """Reads the files of requests.

    Args:
        kind: what the files are.
        timeout: seconds in which the URLs of a batch are fetched.
    """

    def __init__(
        self, kind: MediaType, max_bytes: int, hosts: Sequence[str], timeout: float
    ) -> None:
        self._kind, self._max_bytes = kind, max_bytes
        self._remote = RemoteFiles(hosts, timeout, max_bytes)

    @property
    def max_characters(self) -> int:
        """The maximum number of characters of a file in base64."""
        return self._max_bytes * 4 // 3 + URI_CHARACTERS

    def file(self, value: Any, name: str) -> bytes | RemoteFile:
        """Return the file in a request, or where it is.

        Args:
            value: bytes, or a text with them in base64 or in a data URI, or a URL, or an object
                with one of these under the key of the kind or `b64`.

        Raises:
            BadRequest: it is something else, empty, or not in base64.
            RequestTooLarge: it has too many bytes.
            Unprocessable: it is a URL of a host that is not allowed.
        """
        keys = {self._kind.key, "b64"}
        if isinstance(value, Mapping) and len(value) == 1 and value.keys() <= keys:
            ((name, value),) = value.items()
        check_single(value)
        if isinstance(value, str):
            if URL.match(value):
                return self._remote.allow(value, name)
            # Four characters of base64 are three bytes; spaces may be between them.
            self._check_bytes(len(value) * 3 // 8, name)
            value = self._from_text(value, name)
        if not isinstance(value, (bytes, bytearray)):
            raise BadRequest(f"{name} must be {self._kind.noun}; {self._kind.expected}.")
        if not value:
            raise BadRequest(f"{name} is empty; {self._kind.expected}.")
        self._check_bytes(len(value), name)
        return bytes(value)

    def fetch(self, files: Sequence[bytes | RemoteFile]) -> list[bytes | RequestError]:
        """Return the bytes of the files of a batch; URLs are fetched, all at once."""
        return self._remote.fetch_all(files)

    def _check_bytes(self, count: int, name: str) -> None:
        if count > self._max_bytes:
            raise RequestTooLarge(
                f"{name} has {count:,} bytes, and this model takes {self._max_bytes:,}; send a"
                " smaller file."
            )

    def _from_text(self, text: str, name: str) -> bytes:
        """Return the bytes that a text has in base64."""
        uri = DATA_URI.match(text)
        if uri and not uri["options"].lower().endswith(";base64"):
            raise BadRequest(f"{name} is a data URI without base64; {self._kind.expected}.")
        content = SPACES.sub("", text[uri.end() :] if uri else text)
        try:
            return base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest(f"{name} is not in base64; {self._kind.expected}.") from None


@dataclass(frozen=True)
class RemoteFile:
    """A URL in a request, on a host that is allowed."""

    url: str
    name: str


def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the resolver of the machine gives them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def connect(address: str, port: int, timeout: float) -> httpcore.NetworkStream:
    """Return a TCP connection to an address."""
    return httpcore.SyncBackend().connect_tcp(address, port, timeout)


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet.

    IPv4 addresses within IPv6 addresses (mapped, 6to4, NAT64) are judged as IPv4 addresses.
    Reserved and site-local IPv6 addresses count as global for `ipaddress`, and are not. Neither are
    those of `NOT_PUBLIC`.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # an address with a zone is link-local
        return False
    if isinstance(found, ipaddress.IPv6Address):
        embedded = _embedded(found)
        if embedded is not None:
            found = embedded
        elif found.is_reserved or found.is_site_local:
            return False
    is_listed = any(found in network for network in NOT_PUBLIC)
    return found.is_global and not found.is_multicast and not is_listed


class RemoteFiles:
    """Fetches the files of requests from the hosts that are allowed.

    Args:
        hosts: host names, with `:PORT` for a port other than 80 and 443; `*.example.com` stands for
            all names below `example.com`.
        timeout: seconds for the files of one batch, redirects included.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        timeout: float,
        max_bytes: int,
        resolve: Resolve = addresses_of,
        connect: Connect = connect,
    ) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._timeout, self._max_bytes = timeout, max_bytes
        self._resolve, self._connect = resolve, connect
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, thread_name_prefix="fetch")
        self._tls = ssl.create_default_context()

    def allow(self, url: str, name: str) -> RemoteFile:
        """Return the file of a URL, without fetching it.

        Raises:
            Unprocessable: the URL is malformed, or its host is not allowed.
        """
        if not self._hosts:
            raise Unprocessable(
                f"{name} is a URL, and this model fetches none; send the file itself, or list its"
                " host under handler.allowed_media_hosts in the YAML."
            )
        parts = _split(url, name)
        if not self._is_allowed(parts):
            raise Unprocessable(
                f"{name} is a URL of the host {quote(parts.netloc)}, which is not one that this"
                " model fetches from; send the file itself."
            )
        return RemoteFile(url, name)

    def fetch_all(self, files: Sequence[bytes | RemoteFile]) -> list[bytes | RequestError]:
        """Return the bytes of the files of a batch, or the error of each, within the time limit."""
        until = time.monotonic() + self._timeout
        fetched = {
            place: self._threads.submit(attempt, self._fetch, file, until)
            for place, file in enumerate(files)
            if isinstance(file, RemoteFile)
        }
        return [
            file if isinstance(file, bytes) else self._result(fetched[place], file, until)
            for place, file in enumerate(files)
        ]

    def _result(
        self, fetched: Future[bytes | RequestError], file: RemoteFile, until: float
    ) -> bytes | RequestError:
        """Return what a thread has fetched; the resolver of the machine may keep it for longer."""
        try:
            return fetched.result(max(0.0, until - time.monotonic()))
        except FutureTimeout:
            fetched.cancel()
            return self._late(file.name)

    def _fetch(self, file: RemoteFile, until: float) -> bytes:
        """Return the bytes of a file, after at most three redirects."""
        for _ in range(MAX_REDIRECTS + 1):
            try:
                found = self._get(file, until)
            except (TimeoutError, httpcore.TimeoutException):
                raise self._late(file.name) from None
            except ssl.SSLError:
                raise _not_fetched(
                    file.name, "the certificate of its server is not valid"
                ) from None
            except (socket.gaierror, UnicodeError):  # the latter for a label that is empty or long
                raise _not_fetched(file.name, "its host is unknown") from None
            except (httpcore.NetworkError, httpcore.ProtocolError, OSError):
                raise _not_fetched(file.name, "its server does not answer") from None
            if isinstance(found, bytes):
                return found
            file = self.allow(found, file.name)
        raise _not_fetched(file.name, f"it redirects more than {MAX_REDIRECTS} times")

    def _get(self, file: RemoteFile, until: float) -> bytes | str:
        """Return the bytes of a file, or the URL that it redirects to."""
        backend = _CheckedBackend(file.name, until, self._resolve, self._connect)
        with (
            httpcore.ConnectionPool(self._tls, network_backend=backend, retries=0) as pool,
            pool.stream("GET", _address(file.url), headers=HEADERS) as response,
        ):
            if response.status in REDIRECTS:
                return _location(response, file)
            if response.status != 200:
                raise _not_fetched(file.name, f"its server answers with status {response.status}")
            return self._body(response, file.name)

    def _body(self, response: httpcore.Response, name: str) -> bytes:
        body = bytearray()
        for chunk in response.iter_stream():
            body += chunk
            if len(body) > self._max_bytes:
                raise RequestTooLarge(
                    f"{name} has more than the {self._max_bytes:,} bytes that this model takes;"
                    " send a smaller one."
                )
        return bytes(body)

    def _is_allowed(self, parts: SplitResult) -> bool:
        host, port = (parts.hostname or "").lower(), parts.port
        suffix = "" if port in (None, *PORTS.values()) else f":{port}"
        labels = host.split(".")
        wildcards = (f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels)))
        return any(f"{name}{suffix}" in self._hosts for name in (host, *wildcards))

    def _late(self, name: str) -> Unprocessable:
        return _not_fetched(name, f"its server did not send it within {self._timeout:g} s")


class _CheckedBackend(httpcore.NetworkBackend):
    """Connects to public addresses only, and until a point in time only."""

    def __init__(self, name: str, until: float, resolve: Resolve, connect: Connect) -> None:
        self._name, self._until = name, until
        self._resolve, self._connect = resolve, connect

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = self._resolve(host.strip("[]"), port)
        if not addresses or not all(is_public(address) for address in addresses):
            raise Unprocessable(
                f"{self._name} is a URL of the host {quote(host)}, which has an address that is not"
                " public; send the file itself."
            )
        return _TimedStream(self._connect_to_one(addresses, port), self._until)

    def _connect_to_one(self, addresses: Sequence[str], port: int) -> httpcore.NetworkStream:
        """Return a connection to the first address that answers."""
        *others, last = addresses
        for address in others:
            with suppress(httpcore.NetworkError, httpcore.TimeoutException):
                share = _remaining(self._until) / len(addresses)
                return self._connect(address, port, share)
        return self._connect(last, port, _remaining(self._until))


class _TimedStream(httpcore.NetworkStream):
    """A connection whose reads and writes all end at a point in time.

    The time limits of httpcore hold for each read: a server that sends a byte now and then
    never reaches them.
    """

    def __init__(self, stream: httpcore.NetworkStream, until: float) -> None:
        self._stream, self._until = stream, until

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _remaining(self._until))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _remaining(self._until))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, _remaining(self._until))
        return _TimedStream(stream, self._until)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _split(url: str, name: str) -> SplitResult:
    """Return the parts of a URL.

    Raises:
        Unprocessable: it is malformed, or has another scheme, a user or a password.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for one that is no number
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in PORTS or not parts.hostname or "@" in parts.netloc:
        raise Unprocessable(
            f"{name} is no URL that can be fetched; send one with http or https, a host, and no"
            " user name, or the file itself."
        )
    if not VISIBLE.fullmatch(url):
        raise Unprocessable(
            f"{name} is a URL with spaces or characters that are not ASCII; percent-encode them."
        )
    return parts


def _address(url: str) -> httpcore.URL:
    """Return the URL for httpcore in parts, so that it reads the host as it was checked."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return httpcore.URL(
        scheme=parts.scheme, host=parts.hostname or "", port=parts.port, target=target
    )


def _location(response: httpcore.Response, file: RemoteFile) -> str:
    """Return the URL that a response redirects to.

    Raises:
        Unprocessable: it names none.
    """
    found = next((value for key, value in response.headers if key.lower() == b"location"), None)
    with suppress(ValueError):
        if found is not None:
            return urljoin(file.url, found.decode("latin-1"))
    raise _not_fetched(file.name, "it redirects to nowhere")


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for, if any."""
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _remaining(until: float) -> float:
    """Return the seconds until a point in time.

    Raises:
        TimeoutError: it has passed.
    """
    remaining = until - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _not_fetched(name: str, reason: str) -> Unprocessable:
    return Unprocessable(
        f"{name} is a URL that could not be fetched: {reason}; send the file itself."
    )
