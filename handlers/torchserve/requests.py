"""The requests in TorchServe's rows and context, and the heads of their responses.

With `service_envelope` in config.properties, which holds for every model, an envelope unwraps
bodies before a handler gets them, and wraps its results:

    body      passes each body, and returns the results as they are
    json      passes the instances of all bodies in one list; {"predictions": […]} for each
    kserve    passes the instances of the first body; one {"predictions": […]} for all
    kservev2  passes the tensors of the first body, and only the first text of each

So there can be more items than requests, and the headers and the status of a request hold for many
items. A handler recognises an envelope only by the rows that it gets.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handlers.http.request import HttpRequest
from handlers.http.response import JSON, HttpResponse

logger = logging.getLogger(__name__)

Headers = Mapping[str, Any]
UNKNOWN_TYPE = ""  # a content type that only the envelope knows
PLAIN = "text/plain"
# The only part of a header that is logged, and only in this form.
TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
# Says whether further parts of a response follow.
STREAM_NEXT = "ts_stream_next"


def headers_of(context: Any) -> list[Headers]:
    """Return the headers of each request, not row: an envelope can hold several rows."""
    headers = []
    for processor in context.request_processor:
        headers.append(processor.get_request_properties())
    return headers


def statuses_of(context: Any) -> list[int]:
    """Return the status of each response."""
    count = len(context.request_processor)
    return [context.get_response_status(index)[0] for index in range(count)]


def set_response(context: Any, index: int, response: HttpResponse) -> None:
    """Set content type, status and headers of the response to a request."""
    if response.content_type:
        context.set_response_content_type(index, response.content_type)
    context.set_response_status(code=response.status, phrase="", idx=index)
    for name, value in response.headers.items():
        context.set_response_header(index, name, value)


def log_failures(context: Any) -> None:
    """Log the failed requests of a batch that TorchServe's worker answers at its end."""
    headers, statuses = headers_of(context), statuses_of(context)
    for index, number in (context.request_ids or {}).items():
        log_failure(number, statuses[index], headers[index])


def log_failure(request_id: str, status: int, headers: Headers) -> None:
    """Log the id of a failed request, which its client has as `x-request-id`, and its trace."""
    if status < 500:
        return
    traced = (value for name, value in headers.items() if name.lower() == "traceparent")
    match = TRACE.fullmatch(str(next(traced, "")))
    trace = f" trace_id={match[1]}" if match else ""
    logger.warning("Request failed: request_id=%s status=%d%s", request_id, status, trace)


@dataclass(frozen=True)
class Envelope:
    """The items that an envelope passed.

    Attributes:
        items: the items from the bodies; with kserve the value of `instances`, whatever it is.
        headers: those of each request.
        tensors: whether the items are tensors, whose results must be texts.
    """

    items: Any
    headers: Sequence[Headers]
    tensors: bool

    @classmethod
    def of(cls, rows: Any, headers: Sequence[Headers], context: Any) -> Envelope | None:
        """Return the envelope that passed the rows; None where they are TorchServe's own."""
        tensors = hasattr(context, "input_names")  # kservev2 writes them there
        if tensors or not isinstance(rows, list) or len(rows) != len(headers):
            return cls(rows, headers, tensors)
        # A row has every field that its headers describe; an item of an envelope has others.
        for row, own_headers in zip(rows, headers, strict=True):
            if not isinstance(row, Mapping):
                return cls(rows, headers, tensors)
            for name, value in own_headers.items():
                if isinstance(value, Mapping) and name not in row:
                    return cls(rows, headers, tensors)
        return None

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
    """Return the headers that hold for an item; the type of JSON was that of the whole body."""
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
