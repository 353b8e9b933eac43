"""Responses, and parts of them, that are sent before the batch of their requests is finished.

TorchServe takes a batch for finished with a message in which no row has a part to follow. Source:
`otf_message_handler.py` and `Job.java` of TorchServe 0.12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ts.handler_utils.utils import send_intermediate_predict_response

from handlers.compat.torchserve import is_connected, send_parts
from handlers.errors import RequestError
from handlers.http.response import HttpResponse, encode_json
from handlers.process.deadline import Deadline
from handlers.process.ranks import is_rank0
from handlers.torchserve.requests import STREAM_NEXT, set_response


def send_part(context: Any, index: int, deadline: Deadline, part: HttpResponse) -> None:
    """Send a part of the response of one row; the return value of `handle` is the last part.

    The message names this row only, so the responses of other rows are not affected. With it
    TorchServe starts to count `responseTimeout` again, so the deadline starts again, too.
    """
    deadline.restart()
    set_response(context, index, part)
    ids = {index: context.request_ids[index]}
    send_intermediate_predict_response({index: part.body}, ids, "Prediction success", 200, context)


def send_responses(
    context: Any, over_http: set[int], responses: Mapping[int, HttpResponse]
) -> None:
    """Send whole responses over HTTP, while other rows of the batch are not ready.

    Each row is twice in the message: its response as a part of a stream, and the end of the stream.
    The row's id is removed from those that TorchServe's worker answers at the end. An error has to
    wait: TorchServe closes the connection after the head of a part with such a status.
    """
    ready = [
        index
        for index, response in responses.items()
        if index in over_http and response.status < 400
    ]
    if not ready or not is_connected(context):
        return
    for index in ready:
        set_response(context, index, responses[index])
    parts = [(index, responses[index].body, True) for index in ready]
    _send_parts(context, [*parts, *((index, b"", False) for index in ready)])
    for index in ready:
        del context.request_ids[index]


def send_failures(
    context: Any, responses: Sequence[HttpResponse | None], error: RequestError
) -> None:
    """Send errors, one instead of each response that is None; TorchServe goes on waiting.

    Each of them is an error, after which TorchServe closes the connection. So neither the part to
    follow nor the error that TorchServe adds when the worker ends reaches a client.
    """
    failure = HttpResponse(
        encode_json(error.whole_body()), error.status, headers=dict(error.headers)
    )
    errors = [response or failure for response in responses]
    for index, response in enumerate(errors):
        set_response(context, index, response)
    parts = [(index, response.body, None) for index, response in enumerate(errors)]
    _send_parts(context, [*parts, (0, b"", True)])


def are_unsent(context: Any, over_http: set[int], count: int) -> bool:
    """Return whether all rows came over HTTP, and no response or part of one was sent."""
    headers = [context.get_response_headers(index) for index in range(count)]
    return (
        is_connected(context)
        and len(over_http) == len(context.request_ids) == count
        and not any(STREAM_NEXT in own for own in headers)
    )


def _send_parts(context: Any, parts: Sequence[tuple[int, bytes, bool | None]]) -> None:
    """Send a message with parts of responses: the row, its part, and whether another follows.

    None is for a whole response. A row can have two parts.
    """
    if is_rank0():
        send_parts(context, parts)
