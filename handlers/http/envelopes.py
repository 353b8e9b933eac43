"""TorchServe's own envelopes, `service_envelope` in config.properties: they hold for every model.

An envelope opens bodies before a handler sees them, and wraps what it returns:

    body      hands over each body, and returns what it gets
    json      hands over the instances of all bodies, end to end; {"predictions": […]} for each
    kserve    hands over the instances of the first body; one {"predictions": […]} for all
    kservev2  hands over the tensors of the first body, and of each only the first text

So there can be more items than requests, and all that a request has, headers and a status, is for
many of them. Nothing tells a handler that there is an envelope but what arrives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handlers.http.request import HttpRequest
from handlers.http.response import JSON, HttpResponse

Headers = Mapping[str, Any]
UNTOLD = ""  # a content type that only the envelope could know
PLAIN = "text/plain"


@dataclass(frozen=True)
class Envelope:
    """What an envelope handed over.

    Attributes:
        items: what it took out of the bodies; with kserve whatever stood there as instances.
        headers: those of each request.
        tensors: whether the items are tensors, whose results must be texts.
    """

    items: Any
    headers: Sequence[Headers]
    tensors: bool

    @classmethod
    def of(cls, rows: Any, headers: Sequence[Headers], context: Any) -> Envelope | None:
        """Return the envelope that rows came through; None where they are TorchServe's own."""
        tensors = hasattr(context, "input_names")  # kservev2 writes them there
        if not tensors and isinstance(rows, list) and len(rows) == len(headers):
            pairs = zip(rows, headers, strict=True)
            if all(_is_torchserves(*pair) for pair in pairs):
                return None
        return cls(rows, headers, tensors)

    def http_requests(self) -> list[HttpRequest]:
        """Return each item as if it had been sent alone.

        Where nobody can know whose an item is, it has the headers of the first request, and is
        explained if all requests are to be.
        """
        if not isinstance(self.items, list) or not self.items:
            return [
                HttpRequest(
                    {"body": {"instances": self.items}},
                    _for_item(self.headers[0]),
                    takes_bytes=False,
                )
            ]
        if len(self.items) == len(self.headers):
            owners = self.headers
        else:
            explain = str(all(each.get("explain") == "True" for each in self.headers))
            owners = [{**self.headers[0], "explain": explain}] * len(self.items)
        contents = (_content(item, tensors=self.tensors) for item in self.items)
        return [
            HttpRequest(
                {"body": content} if content is not None else {},
                _for_item(owner),
                takes_bytes=False,
            )
            for content, owner in zip(contents, owners, strict=True)
        ]

    def heads(self, answers: Sequence[HttpResponse]) -> list[HttpResponse]:
        """Return for each request an answer with its status, type and headers."""
        if len(answers) == len(self.headers):
            return [replace(answer, content_type=self._type(answer)) for answer in answers]
        failed = all(answer.status >= 400 for answer in answers)
        return [HttpResponse(b"", answers[0].status if failed else 200)] * len(self.headers)

    def results(self, answers: Sequence[HttpResponse]) -> list[Any]:
        """Return what the envelope is to wrap: values of JSON, or texts, but never bytes."""
        return [self._result(answer) for answer in answers]

    def _result(self, answer: HttpResponse) -> Any:
        text = answer.body.decode()
        return json.loads(text) if answer.content_type == JSON and not self.tensors else text

    def _type(self, answer: HttpResponse) -> str:
        """Return a content type; a bare text may stay one, or become an item of a list."""
        if self.tensors:
            return JSON
        return UNTOLD if answer.content_type.startswith(PLAIN) else answer.content_type


def _is_torchserves(row: Any, headers: Headers) -> bool:
    """Tell whether a row has every field that its headers describe: an item has others."""
    fields = {name for name, value in headers.items() if isinstance(value, Mapping)}
    return isinstance(row, Mapping) and fields <= row.keys()


def _for_item(headers: Headers) -> dict[str, Any]:
    """Return the headers that hold for an item: of JSON, what it was read from had the type."""
    own = {name: value for name, value in headers.items() if not isinstance(value, Mapping)}
    if not HttpRequest({}, own).type.endswith("json"):
        return own
    return {
        name: value for name, value in own.items() if name.lower() not in ("content-type", "accept")
    }


def _content(item: Any, *, tensors: bool) -> Any:
    if tensors and isinstance(item, Mapping):
        return item.get("data")
    if isinstance(item, Mapping):  # the json envelope has read what is in base64
        return {name: _as_text(value) for name, value in item.items()}
    return item


def _as_text(value: Any) -> Any:
    """Return bytes as a text; what is not UTF-8 becomes what no text may have."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
