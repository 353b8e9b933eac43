"""TorchServe's context: the headers of requests, and those of responses."""

from __future__ import annotations

from typing import Any

from handlers.http.envelopes import Headers
from handlers.http.response import HttpResponse

# Says whether further parts of a response follow.
STREAM_NEXT = "ts_stream_next"


def headers_of(context: Any) -> list[Headers]:
    """Return the headers of each request, not row: an envelope can hold several rows."""
    count = len(context.request_processor)
    return [context.get_all_request_header(index) for index in range(count)]


def set_response(context: Any, index: int, response: HttpResponse) -> None:
    """Set content type, status and headers of the response to a request."""
    if response.content_type:
        context.set_response_content_type(index, response.content_type)
    context.set_response_status(code=response.status, phrase="", idx=index)
    for name, value in response.headers.items():
        context.set_response_header(index, name, value)
