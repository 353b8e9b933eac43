"""What every endpoint does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from handlers.answer import Answer
from handlers.bodies import Post
from handlers.description import Description
from handlers.requests import Request


class BaseEndpoint(ABC):
    """One path below the model's own.

    Attributes:
        path: what the URL ends with.
    """

    path: ClassVar[str]

    def __init__(self, model: Description) -> None:
        self.model = model

    @abstractmethod
    def read(self, post: Post) -> list[Request]:
        """Return the requests in a post; none where the answer needs no model.

        Raises:
            RequestError: when it cannot be understood, or not be done by this model.
        """

    @abstractmethod
    def write(self, post: Post, requests: Sequence[Request], results: Sequence[Any]) -> Answer:
        """Return the answer."""
