"""The state of one request on its way through the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handlers.batching.rows import Outputs
from handlers.errors import RequestError
from handlers.types.parameters import ExplanationParameters
from handlers.types.request import Request

DEFAULT_SETTINGS = ExplanationParameters()


@dataclass(eq=False, slots=True)
class RequestState:
    """A request, and what each step has made of it.

    Attributes:
        request: the request.
        http_request_id: the number of the HTTP request that it belongs to.
        input: the request as the task parsed it.
        settings: the explanation parameters, as the explanation target declares them; unused for
            predictions.
        rows: the encoded rows.
        outputs: the model outputs of each row.
        result: the result.
        error: why there is none; further steps skip the request.
    """

    request: Request
    http_request_id: int = 0
    input: Any = None
    settings: Any = DEFAULT_SETTINGS
    rows: Sequence[Any] = ()
    outputs: Sequence[Outputs] = ()
    result: Any = None
    error: RequestError | None = None

    def cost(self) -> int:
        """Return what is computed for its rows, in the unit of the task's budget."""
        return sum(row.cost for row in self.rows)

    def may_run_again(self) -> bool:
        """Return whether no part of the response was sent."""
        stream = self.request.stream or self.request.progress
        return stream is None or not stream.has_begun
