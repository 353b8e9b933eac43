"""TorchServe's context: the headers of requests, and those of responses."""

from __future__ import annotations

import logging
import re
from typing import Any

from handlers.http.envelopes import Headers
from handlers.http.response import HttpResponse

logger = logging.getLogger(__name__)

# The only part of a header that is logged, and only in this form.
TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
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


def log_failure(request_id: str, status: int, headers: Headers) -> None:
    """Log the id of a failed request, which its client has as `x-request-id`, and its trace."""
    if status < 500:
        return
    traced = (value for name, value in headers.items() if name.lower() == "traceparent")
    match = TRACE.fullmatch(str(next(traced, "")))
    trace = f" trace_id={match[1]}" if match else ""
    logger.warning("Request failed: request_id=%s status=%d%s", request_id, status, trace)
