"""Files in requests: bytes, base64, data URIs, and URLs of hosts that are allowed."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handlers.errors import BadRequest, RequestError, RequestTooLarge
from handlers.media.remote import RemoteFile, RemoteFiles

URL = re.compile(r"(?i)[a-z][a-z0-9+.-]*://")
DATA_URI = re.compile(r"(?i)data:(?P<type>[^,;]{0,100})(?P<options>(;[^,;]{0,100}){0,5}),")
SPACES = re.compile(r"[ \t\r\n]+")
# A data URI has a few characters before its base64, which may be broken into lines.
URI_CHARACTERS = 200


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
        max_bytes: the maximum number of bytes of a file.
        hosts: the hosts whose URLs are fetched.
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
            name: its name in an error.

        Raises:
            BadRequest: it is something else, empty, or not in base64.
            RequestTooLarge: it has too many bytes.
            Unprocessable: it is a URL of a host that is not allowed.
        """
        keys = {self._kind.key, "b64"}
        if isinstance(value, Mapping) and len(value) == 1 and value.keys() <= keys:
            ((name, value),) = value.items()
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
        """Return the bytes of the files of a batch; those of URLs are fetched, all at once."""
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
