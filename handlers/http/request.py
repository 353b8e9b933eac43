"""What a client posted, taken out of a TorchServe row and decoded, whatever its wire format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from handlers.errors import BadRequest
from handlers.http.compression import unpack
from handlers.http.decoding import json_of, literal_of, text_of, value_or_text
from handlers.http.response import HttpResponse

JSON = "application/json"
EXPLAIN = ("/explain", ":explain")
# Fields that make of a field `data` one of a form, and no body.
BESIDE_DATA = ("parameters", "target", "options")
# What /invocations has in its query, which TorchServe puts among the fields.
NAME_OF_MODEL = "model_name"
READ_FIELDS = ("inputs", "data", *BESIDE_DATA)
FORM = "application/x-www-form-urlencoded"
LOST = (
    "The body came as a form without fields, as curl -d sends it; add -H 'Content-Type: text/plain'"
    " for a text or -H 'Content-Type: application/json' for JSON."
)


@dataclass(frozen=True)
class HttpRequest:
    """One row of a TorchServe batch: its fields, and its headers as the client spelled them.

    `send` sends a part of the answer before the rest is known; None where that cannot be done.
    `takes_bytes` is False where the answer has to be text.
    """

    row: Mapping[str, Any]
    headers: Mapping[str, Any]
    send: Callable[[HttpResponse], None] | None = None
    takes_bytes: bool = True

    @property
    def explains(self) -> bool:
        """Whether it came to `/explanations`, or to a path of another server's that ends so."""
        return self.headers.get("explain") == "True" or self.path.endswith(EXPLAIN)

    @property
    def describes(self) -> bool:
        """Whether it is TorchServe's describe call: any client can send the header, with a row."""
        return self.headers.get("describe") == "True" and not self.row

    @property
    def by_grpc(self) -> bool:
        """Whether it came by gRPC: over HTTP there are headers beside what describes the fields."""
        return not any(isinstance(value, str) for value in self.headers.values())

    @property
    def path(self) -> str:
        """What stands behind the model's name and version in the URL; most often nothing."""
        return self.header("url_path").strip("/")

    @property
    def type(self) -> str:
        """The body's content type in lower case, without parameters such as the character set."""
        return self._described_type.split(";", maxsplit=1)[0].strip()

    @cached_property
    def raw(self) -> Any:
        """The body as TorchServe handed it over, uncompressed; None for a form's fields.

        Raises:
            RequestError: its compression cannot be undone.
        """
        name = self._body_name
        body = None if name is None else self.row[name]
        if not isinstance(body, (bytes, bytearray)):
            return body
        return unpack(body, self.header("content-encoding").strip().lower())

    @property
    def text(self) -> Any:
        """The body as the text that its bytes are; other values as they are.

        Raises:
            RequestError: they are none, or not in the character set that its type declares.
        """
        return text_of(self.raw, content_type=self._described_type)

    @cached_property
    def content(self) -> Any:
        """The content: JSON values, a text, or the fields of a form.

        A body without a type, as `curl -T` sends it, is JSON when it looks like an object, else
        text. So are a form's fields that may hold more than a text; `target` may also be a number.

        Raises:
            BadRequest: no body, not UTF-8, broken JSON, or compressed in an unknown way.
            RequestTooLarge: it unpacks to more than any request may hold.
        """
        if self._body_name is not None:
            return _decode(self.raw, self._described_type)
        if self.type == FORM and not (self.row and all(map(str.isidentifier, self.row))):
            raise BadRequest(LOST)
        if not self.row:
            raise BadRequest(
                "The request has no body; send JSON with -H 'Content-Type: application/json' "
                "or a file with -T."
            )
        fields = {name: self.row[name] for name in self.row if name != NAME_OF_MODEL}
        return {name: _field(name, text_of(value, name)) for name, value in fields.items()}

    def header(self, name: str) -> str:
        """Return an HTTP header whatever its case; empty when there is none."""
        return self._headers.get(name.lower(), "")

    @cached_property
    def _headers(self) -> dict[str, str]:
        """The headers under their names in lower case; of two that differ by case, the first."""
        pairs = reversed(list(self.headers.items()))
        return {name.lower(): str(value) for name, value in pairs}

    @property
    def _body_name(self) -> str | None:
        if "body" in self.row:
            return "body"
        return "data" if "data" in self.row and self.row.keys().isdisjoint(BESIDE_DATA) else None

    @property
    def _described_type(self) -> str:
        described = self.headers.get(self._body_name or "")
        if isinstance(described, Mapping) and described.get("content-type"):
            return str(described["content-type"]).lower()
        return self.header("content-type").lower()


def _decode(value: Any, content_type: str) -> Any:
    if not isinstance(value, (str, bytes, bytearray)):
        return value
    text = text_of(value, content_type=content_type)
    if not text.strip():
        raise BadRequest("The body is empty; send a text or JSON.")
    if content_type == JSON and isinstance(value, str):
        return value  # TorchServe has read this type already: the JSON was a text
    if content_type.split(";", maxsplit=1)[0].strip().endswith("json"):
        return json_of(text)
    return value_or_text(text)


def _field(name: str, value: Any) -> Any:
    """Return the value of a form's field; those that can hold more than a text are read."""
    if not isinstance(value, str) or name not in READ_FIELDS:
        return value
    content = value_or_text(value, name)
    literal = literal_of(value) if name == "target" else None
    return literal if type(literal) in (int, tuple) else content
