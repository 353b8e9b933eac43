"""What every endpoint does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.request import Request


class BaseEndpoint(ABC):
    """One path below the model's own.

    Attributes:
        path: what the URL ends with.
    """

    path: ClassVar[str]

    def __init__(self, model: ModelInfo) -> None:
        self.model = model

    @abstractmethod
    def read(self, http_request: HttpRequest) -> list[Request]:
        """Return the requests in a post; none where the answer needs no model.

        Raises:
            RequestError: when it cannot be understood, or not be done by this model.
        """

    @abstractmethod
    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> HttpResponse:
        """Return the answer."""
