"""Service envelopes: what `service_envelope` in config.properties makes of rows and results.

It holds for every model. An envelope unwraps bodies before a handler gets them, and wraps its
results:

    body      passes each body, and returns the results as they are
    json      passes the instances of all bodies in one list; {"predictions": […]} for each
    kserve    passes the instances of the first body; one {"predictions": […]} for all
    kservev2  passes the tensors of the first body, and only the first text of each

So there can be more items than requests, and the headers and the status of a request hold for many
items. A handler recognises an envelope only by the rows that it gets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handlers.http.request import HttpRequest
from handlers.http.response import JSON, HttpResponse

Headers = Mapping[str, Any]
UNKNOWN_TYPE = ""  # a content type that only the envelope knows
PLAIN = "text/plain"


@dataclass(frozen=True)
class Envelope:
    """The items that an envelope passed.

    Attributes:
        items: the items from the bodies; with kserve the value of `instances`, whatever it is.
        tensors: whether the items are tensors, whose results must be texts.
    """

    items: Any
    headers: Sequence[Headers]
    tensors: bool

    def rows(self) -> list[tuple[dict[str, Any], Headers]]:
        """Return the fields and headers of each item, as if it had been sent alone.

        Where the request of an item is unknown, the item gets the headers of the first request,
        and is explained if all requests are for explanations.
        """
        if not isinstance(self.items, list) or not self.items:
            return [({"body": {"instances": self.items}}, _for_item(self.headers[0]))]
        if len(self.items) == len(self.headers):
            owners = self.headers
        else:
            explain = str(all(each.get("explain") == "True" for each in self.headers))
            owners = [{**self.headers[0], "explain": explain}] * len(self.items)
        contents = (_content(item, tensors=self.tensors) for item in self.items)
        return [
            (
                {"body": content} if content is not None else {},
                _for_received(owner) if isinstance(content, bytearray) else _for_item(owner),
            )
            for content, owner in zip(contents, owners, strict=True)
        ]

    def heads(self, responses: Sequence[HttpResponse]) -> list[HttpResponse]:
        """Return for each request a response with its status, type and headers."""
        if len(responses) == len(self.headers):
            return [replace(each, content_type=self._type(each)) for each in responses]
        failed = all(response.status >= 400 for response in responses)
        return [HttpResponse(b"", responses[0].status if failed else 200)] * len(self.headers)

    def results(self, responses: Sequence[HttpResponse]) -> list[Any]:
        """Return what the envelope wraps: values of JSON, or texts, but never bytes."""
        return [self._result(response) for response in responses]

    def _result(self, response: HttpResponse) -> Any:
        text = response.body.decode()
        return json.loads(text) if response.content_type == JSON and not self.tensors else text

    def _type(self, response: HttpResponse) -> str:
        """Return a content type; a text may stay one, or become an item of a list."""
        if self.tensors:
            return JSON
        return UNKNOWN_TYPE if response.content_type.startswith(PLAIN) else response.content_type


def _for_item(headers: Headers) -> dict[str, Any]:
    """Return the headers that hold for an item; the type of JSON belongs to the whole body."""
    own = {name: value for name, value in headers.items() if not isinstance(value, Mapping)}
    if not HttpRequest({}, own).type.endswith("json"):
        return own
    return {
        name: value for name, value in own.items() if name.lower() not in ("content-type", "accept")
    }


def _for_received(headers: Headers) -> dict[str, Any]:
    """Return the headers of a body as it was received, which only the `body` envelope passes.

    TorchServe receives bodies as bytearrays; texts that the `json` envelope decodes are bytes.
    """
    described = (headers.get(name) for name in ("data", "body"))  # the order of the envelope
    own = {"body": next((each for each in described if isinstance(each, Mapping)), None)}
    kind = HttpRequest({"body": b""}, {**headers, **own}).content_type
    return {**_for_item(headers), "body": {"content-type": kind}}


def _content(item: Any, *, tensors: bool) -> Any:
    if tensors and isinstance(item, Mapping):
        return item.get("data")
    if isinstance(item, Mapping):  # the json envelope has decoded base64
        return {name: _as_text(value) for name, value in item.items()}
    return item


def _as_text(value: Any) -> Any:
    """Return the text of bytes; what is not UTF-8 becomes surrogates, which no text may have."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
