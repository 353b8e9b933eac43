"""What every contender offers: a server that starts, is asked over HTTP, and stops."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import httpx

from handlers.errors import KitError

PATIENCE = 600  # seconds for one answer


class WrongAnswer(KitError):
    """A request failed."""

    def __init__(self, name: str, answer: httpx.Response) -> None:
        super().__init__(
            f"{name} answered a request with {answer.status_code}"
            f" ({' '.join(answer.text.split())[:200]}); read its logs."
        )


class NoAnswer(KitError):
    """A request was not answered at all: nobody listens any more, or it took too long."""

    def __init__(self, name: str, error: httpx.TransportError, seconds: float) -> None:
        super().__init__(
            f"{name} gave a request no answer within {seconds:g} s"
            f" ({type(error).__name__}: {error}); read its logs."
        )


class Contender(ABC):
    """A server with one model.

    Attributes:
        name: how it is called on the command line and in the table.
        precision: the dtype of its matrix products: float32, bfloat16, float16 or int8.
        content_type: of its requests' bodies.
    """

    name: str
    precision: str
    content_type: ClassVar[str] = "application/json"

    @abstractmethod
    def start(self) -> None:
        """Start it and return once it is ready.

        Raises:
            KitError: when it does not start; nothing is left running then.
        """

    @abstractmethod
    def stop(self) -> None:
        """End it and everything that it started; does nothing where it does not run."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where requests are sent, while it runs."""

    @property
    @abstractmethod
    def leader(self) -> int:
        """The id of the process that leads its process group, while it runs."""

    def body(self, inputs: Any) -> str:
        """Return a request's body."""
        return json.dumps({"inputs": inputs}, ensure_ascii=False)

    def ask(self, inputs: Any) -> None:
        """Send one request and wait for its answer, behind all that came before it.

        Raises:
            WrongAnswer: it failed.
            NoAnswer: there was none.
        """
        try:
            answer = self._post(inputs)
        except httpx.TransportError as error:
            raise NoAnswer(self.name, error, PATIENCE) from None
        if not answer.is_success:
            raise WrongAnswer(self.name, answer)

    def _post(self, inputs: Any) -> httpx.Response:
        return httpx.post(
            self.url,
            content=self.body(inputs).encode(),
            headers={"Content-Type": self.content_type},
            timeout=PATIENCE,
            trust_env=False,
        )
