"""What every contender offers: a server that starts, is asked over HTTP, and stops."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar


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
