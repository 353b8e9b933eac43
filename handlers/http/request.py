"""An HTTP request as TorchServe passes it: the fields and the headers of a row of a batch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..config.messages import RepeatedField, quote
from ..errors import BadRequest, RequestTooLarge
from ..types.model_info import FILE_TYPES as TYPES_OF_COLUMNS
from .decoding import (
    check_json_size,
    decode_text,
    decompress,
    is_utf8,
    parse_json,
    parse_literal,
    value_or_text,
)
from .limits import DEFAULTS, BodyLimits
from .response import HttpResponse

JSON = "application/json"
# Precedes the number of a field that comes several times.
SEPARATOR = "\x00"
# The end of the name of a field whose value is a list, even if it comes once.
LIST = "[]"
EXPLAIN = ("/explain", ":explain")
# With one of these fields, the field `data` belongs to a form and is not the body.
FORM_FIELDS = ("parameters", "target", "options")
# Parameters in the query of /invocations and /models/<model>/invoke, which TorchServe adds to the
# fields: the model, and the path below it. Below /predictions/<model> it needs a version before it.
PATH_FIELD = "path"
QUERY_FIELDS = ("model_name", PATH_FIELD)
# A name of the model in the query, which servers in front of TorchServe read.
MODEL_FIELD = "model"
PARSED_FIELDS = ("inputs", "data", *FORM_FIELDS)
FORM = "application/x-www-form-urlencoded"
# The beginnings of content types; SageMaker's name for images is application/x-image.
FILE_TYPES = (
    *(each.removesuffix("*") for each in TYPES_OF_COLUMNS.values()),
    *("application/x-image", "application/octet-stream"),
)
NO_FIELDS = (
    "The body came as a form without fields, as curl -d sends it; add -H 'Content-Type: text/plain'"
    " for a text or -H 'Content-Type: application/json' for JSON."
)


@dataclass(frozen=True)
class HttpRequest:
    """One row of a TorchServe batch: its fields, and its headers as the client spelled them.

    `send` sends a part of the response before it is complete; None where that is not possible.
    `takes_bytes` is False where the response has to be text. `limits` are the limits of the body.
    `reads_media` is whether the body or a field of a form may be a file that is no text.
    `response_headers` are further headers of its response.
    """

    row: Mapping[str, Any]
    headers: Mapping[str, Any]
    send: Callable[[HttpResponse], None] | None = None
    takes_bytes: bool = True
    limits: BodyLimits = DEFAULTS
    reads_media: bool = False
    response_headers: Mapping[str, str] = field(default_factory=dict)

    def with_response_headers(self, headers: Mapping[str, str]) -> HttpRequest:
        """Return the request, whose response has further headers."""
        # A copy has what was decoded, too.
        other = copy(self)
        object.__setattr__(other, "response_headers", {**self.response_headers, **headers})
        return other

    @cached_property
    def explains(self) -> bool:
        """Whether its path is `/explanations` or ends as in another protocol."""
        return self.headers.get("explain") == "True" or self.path.endswith(EXPLAIN)

    @property
    def own_body(self) -> dict[str, Any] | None:
        """The body that TorchServe has read as an object, sent over HTTP to the model's own path.

        None for other requests.
        """
        body = self.row.get("body")
        is_own = isinstance(body, dict) and not self.path and not is_grpc(self.headers)
        return body if is_own else None

    @property
    def describes(self) -> bool:
        """Whether it is TorchServe's describe call.

        Clients may send its header, too; TorchServe adds another one, `explain`, to their requests.
        """
        own = self.headers.get("describe") == "True" and "explain" not in self.headers
        return own and not self.row

    @property
    def by_grpc(self) -> bool:
        """Whether it came by gRPC."""
        return is_grpc(self.headers)

    @cached_property
    def path(self) -> str:
        """The part of the URL after the model's name and version, or `path` in the query.

        Usually it is empty. Without a version it can be in the query only.
        """
        path = self.header("url_path")
        if not path and PATH_FIELD in self.row:
            path = self._path_of_query
        # Clients join a base URL that ends with a slash and a path that begins with one.
        return re.sub("/+", "/", path).strip("/")

    @property
    def type(self) -> str:
        """The body's content type in lower case, without parameters such as the character set."""
        return _plain_type(self.content_type)

    @cached_property
    def raw(self) -> Any:
        """The body from TorchServe, decompressed; None for the fields of a form.

        Raises:
            RequestError: it cannot be decompressed.
        """
        name = self._body_name
        body = None if name is None else self.row[name]
        if name and isinstance(body, str) and _type_in(self.headers, name).startswith("text"):
            body = body.encode()  # as it was sent; TorchServe reads any text as UTF-8
        if not isinstance(body, (bytes, bytearray)):
            return body
        coding = self.header("content-encoding").strip().lower()
        return decompress(body, coding, self.limits.max_request_bytes)

    @property
    def has_body(self) -> bool:
        """Whether it has a body that is not empty, or the fields of a form."""
        name = self._body_name
        return bool(self._names) if name is None else self.row[name] not in ("", b"", None)

    @property
    def text(self) -> Any:
        """The text of the body's bytes; other values as they are.

        Raises:
            RequestError: they are not a text in the character set of the content type.
        """
        return decode_text(self.raw, content_type=self.content_type)

    @cached_property
    def content(self) -> Any:
        """The content: JSON values, a text, the fields of a form, or the bytes of a file.

        A body without a type, as `curl -T` sends it, is JSON if it looks like an object, else
        text. So are the fields of a form that can be more than a text; `target` may be a number. A
        part of a form whose own type is JSON is JSON.

        Raises:
            BadRequest: no body, not UTF-8, broken JSON, an unknown compression, or a field that is
                not read with the body.
            RequestTooLarge: it decompresses to too many bytes, or has too many values.
        """
        body = self.row.get("body")
        if isinstance(body, dict):
            return body
        if self._body_name is not None:
            self._check_no_fields(self._body_name)
            if self.reads_media and _is_file(self.raw, self.content_type):
                return bytes(self.raw)
            return _decode(self.raw, self.content_type, self.limits.max_values)
        if self.type == FORM and not (self._names and all(map(_is_field, self._names))):
            raise BadRequest(NO_FIELDS)
        if not self._names:
            raise BadRequest(
                "The request has no body; send JSON with -H 'Content-Type: application/json' "
                "or a file with -T."
            )
        return self._joined_fields()

    def header(self, name: str) -> str:
        """Return an HTTP header, whatever its case; empty when it is missing."""
        return self._headers.get(name.lower(), "")

    @cached_property
    def _headers(self) -> dict[str, str]:
        """The headers under their names in lower case; of two that differ by case, the first."""
        found: dict[str, str] = {}
        for name, value in self.headers.items():
            found.setdefault(name.lower(), str(value))
        return found

    def _joined_fields(self) -> dict[str, Any]:
        """Return the values of a form by name; a list where a field comes several times.

        A field whose name ends with `[]` is a list, too, under the name without them.
        """
        found: dict[str, RepeatedField] = {}
        lists: set[str] = set()
        if len(self.row) > self.limits.max_values:
            raise RequestTooLarge(
                f"The form has {len(self.row):,} fields, and at most {self.limits.max_values:,} are"
                " read; send fewer."
            )
        for name, value in self._fields():
            plain = name.removesuffix(LIST) or name
            found.setdefault(plain, RepeatedField(plain)).append(value)
            if plain != name or len(found[plain]) > 1:
                lists.add(plain)
        return {name: found[name] if name in lists else found[name][0] for name in found}

    def _check_no_fields(self, body: str) -> None:
        """Refuse fields of a form or of a query that are not read, where a field is the whole body.

        Raises:
            BadRequest: there is one.
        """
        name = next((each for each in self._names if each not in (body, MODEL_FIELD)), None)
        if name is not None:
            raise BadRequest(
                f"The request has the field {quote(name_in_form(name))} in its form or its query,"
                f" and its field {body} is the whole body; send settings in the key parameters of a"
                " JSON body, or as JSON in the field parameters of a form with the field inputs."
            )

    @property
    def _names(self) -> list[str]:
        """The names of the fields in the body."""
        return [name for name in self.row if name_in_form(name) not in QUERY_FIELDS]

    @property
    def _path_of_query(self) -> str:
        path = self.row.get(PATH_FIELD, "")
        if isinstance(path, (bytes, bytearray)):
            path = path.decode("utf-8", "replace")
        return path if isinstance(path, str) else ""

    def _fields(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the value of each field of a form."""
        counted, max_values = 0, self.limits.max_values
        for key in self._names:
            name, kind, value = name_in_form(key), _type_in(self.headers, key), self.row[key]
            if self.reads_media and _is_file(value, kind):
                yield name, bytes(value)
                continue
            value = decode_text(value, name)
            if not _is_json(kind):
                value = _field(name, value, max_values)
            elif isinstance(value, str) and not _is_parsed(self.row[key], kind):
                counted = check_json_size(value, name, max_values, counted)
                value = parse_json(value, name, max_values)
            yield name, value

    @property
    def _body_name(self) -> str | None:
        if "body" in self.row:
            return "body"
        is_form = not self.row.keys().isdisjoint(FORM_FIELDS) or f"data{SEPARATOR}1" in self.row
        return "data" if "data" in self.row and not is_form else None

    @property
    def content_type(self) -> str:
        """The body's content type in lower case, with its parameters.

        TorchServe describes the body, too, and leaves out the parameters there.
        """
        described = _type_in(self.headers, self._body_name or "")
        sent = self.header("content-type").lower()
        return sent if described in ("", _plain_type(sent)) else described


def distinct_names(names: Iterable[str]) -> Iterator[str]:
    """Yield names, each followed by its number where it came before: `image`, `image␀1`, `image␀2`.

    TorchServe's worker puts the fields of a request into a dictionary, where the last one of a name
    would be the only one. `␀` is the character with the code 0.
    """
    seen = Counter[str]()
    for name in names:
        yield f"{name}{SEPARATOR}{seen[name]}" if seen[name] else name
        seen[name] += 1


def name_in_form(name: str) -> str:
    """Return the name of a field as the client sent it."""
    return name.partition(SEPARATOR)[0]


def parse_accept(accept: str) -> list[tuple[str, float]]:
    """Return each type of the header with its quality, from 0 to 1, in the order of the header."""
    return [_parse_entry(entry) for entry in accept.lower().split(",")]


def preferred(accept: str, known: Collection[str]) -> str:
    """Return the known type of the highest quality, of equals the first; empty if there is none."""
    found = [
        (kind, quality) for kind, quality in parse_accept(accept) if kind in known and quality > 0
    ]
    return max(found, key=lambda entry: entry[1], default=("", 0.0))[0]


def _parse_entry(entry: str) -> tuple[str, float]:
    kind, *options = (part.strip() for part in entry.split(";"))
    quality = next((option[2:] for option in options if option.startswith("q=")), "1")
    try:
        return kind, float(quality)
    except ValueError:
        return kind, 1.0


def is_grpc(headers: Mapping[str, Any]) -> bool:
    """Return whether a request came by gRPC: all its headers describe fields."""
    for value in headers.values():
        if isinstance(value, str):
            return False
    return True


def _is_field(name: str) -> bool:
    return name_in_form(name).removesuffix(LIST).isidentifier()


def _decode(value: Any, content_type: str, max_values: int) -> Any:
    if not isinstance(value, (str, bytes, bytearray)):
        return value
    text = decode_text(value, content_type=content_type)
    if not text.strip():
        raise BadRequest("The body is empty; send a text or JSON.")
    if _is_parsed(value, content_type):
        return value
    if _is_json(content_type):
        return parse_json(text, max_values=max_values)
    return value_or_text(text, max_values=max_values)


def _type_in(headers: Mapping[str, Any], name: str) -> str:
    """Return the content type that TorchServe's description of a field has; usually empty."""
    described = headers.get(name)
    kind = described.get("content-type") if isinstance(described, Mapping) else None
    return str(kind or "").lower()


def _is_file(value: Any, content_type: str) -> bool:
    """Return whether bytes are a file, by their content type or because they are no text."""
    if not isinstance(value, (bytes, bytearray)) or _is_json(content_type):
        return False
    return content_type.startswith(FILE_TYPES) or not is_utf8(value)


def _is_json(content_type: str) -> bool:
    return _plain_type(content_type).endswith("json")


def _plain_type(content_type: str) -> str:
    """Return a content type without its parameters."""
    return content_type.split(";", maxsplit=1)[0].strip()


def _is_parsed(value: Any, content_type: str) -> bool:
    """Return whether TorchServe has parsed a text: only this type, and then the JSON was a text."""
    return _plain_type(content_type) == JSON and isinstance(value, str)


def _field(name: str, value: Any, max_values: int) -> Any:
    """Return the value of a form's field, parsed if the field can be more than a text."""
    if not isinstance(value, str) or name not in PARSED_FIELDS:
        return value
    content = value_or_text(value, name, max_values)
    literal = parse_literal(value) if name == "target" else None
    return literal if type(literal) in (int, tuple) else content
