"""What every wire format does: body -> requests, results -> body."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from handlers.errors import BadRequest, RequestError, RequestTooLarge
from handlers.requests import Request
from handlers.sections import Handler

JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    """What goes back for one row of a TorchServe batch."""

    body: bytes
    status: int = 200
    content_type: str = JSON


class BaseProtocol(ABC):
    """One way of asking; an instance serves one model.

    Attributes:
        rank: protocols are tried in this order, lowest first.
    """

    rank: ClassVar[int]

    def __init__(self, settings: Handler) -> None:
        self.settings = settings

    @abstractmethod
    def recognises(self, content: Any) -> bool:
        """Tell whether a body's content is in this format."""

    @abstractmethod
    def read(self, content: Any, *, explain: bool) -> list[Request]:
        """Return the requests in a body.

        Raises:
            RequestError: when the body as a whole cannot be understood.
        """

    def write(self, requests: Sequence[Request], outcomes: Sequence[Any]) -> Answer:
        """Return the answer to a body, from the outcome of each of its requests."""
        if requests[0].alone:
            return self.write_one(outcomes[0])
        if all(isinstance(outcome, RequestError) for outcome in outcomes):
            return self.write_one(outcomes[0])
        return Answer(encode([in_place(outcome) for outcome in outcomes]))

    def write_one(self, outcome: Any) -> Answer:
        """Return the answer to a body with one request, or to one that could not be read."""
        if isinstance(outcome, RequestError):
            return Answer(encode(outcome.body()), outcome.status)
        return Answer(encode(outcome))

    def requests(self, inputs: Any, parameters: dict[str, Any]) -> list[Request]:
        """Return a request for each item of a list, or the one request that inputs are."""
        if not isinstance(inputs, list):
            return [Request(inputs, parameters)]
        if not inputs:
            raise BadRequest("inputs is an empty list; send at least one item.")
        if len(inputs) > self.settings.max_rows:
            raise RequestTooLarge(
                f"inputs has {len(inputs)} items, and this model takes {self.settings.max_rows}"
                " a request; send them in parts."
            )
        return [Request(item, parameters, alone=False) for item in inputs]


def encode(value: Any) -> bytes:
    """Return compact JSON as UTF-8; half a surrogate pair stays the escape that it came as.

    Raises:
        ValueError: a number is not finite: JSON has none such.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def in_place(outcome: Any) -> Any:
    """Return a result, or an error's body where the result would be."""
    return outcome.body() if isinstance(outcome, RequestError) else outcome
