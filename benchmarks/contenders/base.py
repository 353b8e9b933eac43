"""The interface of a contender: a server with one model that is measured over HTTP."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import httpx

from hf_serve.handlers.errors import KitError

TIMEOUT = 600  # seconds for one response


class ErrorResponse(KitError):
    """A request returned an error status."""

    def __init__(self, name: str, answer: httpx.Response) -> None:
        super().__init__(
            f"{name} responded with status {answer.status_code}"
            f" ({' '.join(answer.text.split())[:200]}); read its logs."
        )


class NoResponse(KitError):
    """A request got no response: the connection failed or timed out."""

    def __init__(self, name: str, error: Exception, seconds: float) -> None:
        super().__init__(
            f"{name} did not respond within {seconds:g} s"
            f" ({type(error).__name__}: {error}); read its logs."
        )


class Contender(ABC):
    """A server with one model.

    Attributes:
        name: the name on the command line and in the results.
        precision: the dtype of its matrix products: float32, bfloat16, float16 or int8.
        content_type: the content type of request bodies.
    """

    name: str
    precision: str
    content_type: ClassVar[str] = "application/json"

    @abstractmethod
    def start(self) -> None:
        """Start the server and wait until it is ready.

        Raises:
            KitError: it does not start; its processes are stopped.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the server and all its processes, if it is running."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL for requests."""

    @property
    @abstractmethod
    def leader(self) -> int:
        """The process id of the leader of the process group."""

    def body(self, inputs: Any) -> str:
        """Return the body of a request."""
        return json.dumps({"inputs": inputs}, ensure_ascii=False)

    def ask(self, inputs: Any) -> None:
        """Send one request and wait for the response.

        Raises:
            ErrorResponse: the response is an error.
            NoResponse: there is no response.
        """
        try:
            answer = self._post(inputs)
        except httpx.TransportError as error:
            raise NoResponse(self.name, error, TIMEOUT) from None
        if not answer.is_success:
            raise ErrorResponse(self.name, answer)

    def _post(self, inputs: Any) -> httpx.Response:
        return httpx.post(
            self.url,
            content=self.body(inputs).encode(),
            headers={"Content-Type": self.content_type},
            timeout=TIMEOUT,
            trust_env=False,
        )
