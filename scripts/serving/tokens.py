"""TorchServe's tokens: `key_file.json`, which it writes at start, and their renewal."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import httpx

from hf_serve.handlers.errors import KitError

KEY_FILE = "key_file.json"
TokenType = Literal["management", "inference"]
# A token is renewed if it expires in less time, so that a call that begins now is not refused.
MARGIN = timedelta(minutes=2)
# TorchServe empties the file before it writes it; a reader in between waits.
WRITE_SECONDS, POLL_INTERVAL = 1.0, 0.05
# TorchServe writes nanoseconds, and Python reads microseconds.
FRACTION = re.compile(r"\.(\d{1,6})\d*")


class WrongKeyFile(KitError):
    """A key file is missing, unreadable or without a key."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path} {problem}; TorchServe writes it into the folder that it was started in, unless"
            " disable_token_authorization is true."
        )


class RenewalFailed(KitError):
    """TorchServe did not renew a token."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(
            f"TorchServe did not renew the {kind} token ({reason}); start it again, or give the"
            " address of its management API."
        )


@dataclass(frozen=True)
class Tokens:
    """The tokens of a server; None of them where token authorization is off.

    Attributes:
        key_file: the file that TorchServe wrote; None where tokens are off.
        management_url: the address at which it renews tokens.
        write_seconds: how long a reader waits for the file while TorchServe writes it.
    """

    key_file: Path | None
    management_url: str
    write_seconds: float = WRITE_SECONDS

    def header(self, kind: TokenType) -> dict[str, str]:
        """Return the authorization header of a kind of call, with a token that has not expired.

        Raises:
            WrongKeyFile: the file cannot be read.
            RenewalFailed: the token has expired, and TorchServe does not renew it.
        """
        if self.key_file is None:
            return {}
        entry = self._entry(kind)
        if _expires_at(entry) - datetime.now(UTC) < MARGIN:
            self._renew(kind)
            entry = self._entry(kind)
        return {"Authorization": f"Bearer {entry['key']}"}

    def _renew(self, kind: TokenType) -> None:
        headers = {"Authorization": f"Bearer {self._entry('API')['key']}"}
        url = f"{self.management_url}/token"
        try:
            answer = httpx.get(url, params={"type": kind}, headers=headers, trust_env=False)
        except httpx.TransportError as error:
            raise RenewalFailed(kind, str(error)) from None
        if answer.is_error:
            raise RenewalFailed(kind, f"status {answer.status_code}")

    def _entry(self, name: str) -> dict[str, Any]:
        assert self.key_file is not None  # noqa: S101 - `header` has looked
        try:
            entry = _read_json(self.key_file, self.write_seconds)[name]
            return {**entry, "key": str(entry["key"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WrongKeyFile(self.key_file, f"has no {name} key ({error})") from None


def _read_json(path: Path, seconds: float) -> Any:
    """Return the content of a file, also of one that is being written at this moment."""
    end = time.monotonic() + seconds
    while True:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            if time.monotonic() > end:
                raise
            time.sleep(POLL_INTERVAL)


def _expires_at(entry: dict[str, Any]) -> datetime:
    """Return when a token expires; a long time ago where the file does not say it."""
    text = FRACTION.sub(r".\1", str(entry.get("expiration time", "")))
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
