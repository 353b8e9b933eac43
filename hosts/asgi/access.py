"""Who may use the application: static API keys."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path

from starlette.datastructures import Headers

from hf_serve.handlers.errors import WrongConfig
from hf_serve.hosts.asgi.backend import Headers as RawHeaders
from hf_serve.hosts.asgi.errors import Unauthorized

BEARER = "bearer "
KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})


class ApiKeys:
    """Keys, one of which a request must have, as `Authorization: Bearer KEY` or `X-Api-Key: KEY`.

    Args:
        keys: the keys; none for requests without a key.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._keys = [key.encode() for key in keys]

    def check(self, headers: Headers) -> None:
        """Check that a request has a key.

        Raises:
            Unauthorized: it has none, or a wrong one.
        """
        if not self._keys:
            return
        authorization = headers.get("authorization", "")
        is_bearer = authorization[: len(BEARER)].lower() == BEARER
        given = [
            authorization[len(BEARER) :].strip() if is_bearer else "",
            headers.get("x-api-key", ""),
        ]
        # Every key is compared, so that the time tells nothing about them.
        matches = [hmac.compare_digest(each.encode(), key) for each in given for key in self._keys]
        if not any(matches):
            raise Unauthorized

    def without_key(self, headers: RawHeaders) -> RawHeaders:
        """Return headers without the key, which the model must not see."""
        if not self._keys:
            return headers
        return [each for each in headers if each[0] not in KEY_HEADERS]


def read_keys(path: Path | None, value: str = "") -> ApiKeys:
    """Return the keys of a file, one in a line, and those of a value with commas.

    Raises:
        WrongConfig: the file cannot be read, or has no key.
    """
    keys = [key.strip() for key in value.split(",") if key.strip()]
    if path:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise WrongConfig(str(path), f"cannot be read ({error})", "check the path") from None
        found = [line.strip() for line in lines if line.strip() and line[0] != "#"]
        if not found:
            raise WrongConfig(str(path), "has no key", "write one key in each line")
        keys += found
    return ApiKeys(keys)
