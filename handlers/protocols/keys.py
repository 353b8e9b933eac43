"""The keys of a route's bodies: which are honoured, which have no effect here, which are refused.

A route has one :class:`KeyTable` of every key that its own API and the servers with the same route
define. The parser reads it, `docs/keys.md` shows it, and a test sends each key alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic import BaseModel

from handlers.config.quoting import enumerate_names
from handlers.errors import Unprocessable
from handlers.http.request import HttpRequest

# Lists the keys of a body that no server defines.
UNKNOWN_KEYS = "X-Unknown-Keys"
EMPTY: Sequence[Any] = ("", [], {})
MAX_SHOWN, MAX_CHARACTERS = 10, 40

Treatment = Literal["honoured", "without effect", "refused"]


@dataclass(frozen=True)
class Key:
    """What a route does with a key.

    Attributes:
        treatment: whether it is honoured, changes nothing, or is refused with status 422.
        neutral: the values of a refused key that change nothing, besides null and empty ones.
        remedy: what to do in its place, for the error.
        by_presence: whether an empty value asks for something, too.
    """

    treatment: Treatment
    neutral: Sequence[Any] = ()
    remedy: str = "leave it out"
    by_presence: bool = False


@dataclass(frozen=True)
class KeyTable:
    """The keys of one route, by name.

    Attributes:
        keys: every key, and what the route does with it.
    """

    keys: Mapping[str, Key] = field(default_factory=dict)

    @classmethod
    def of(cls, body: type[Any], *others: Mapping[str, Key]) -> Self:
        """Return the table of a body, whose fields are honoured unless another key says otherwise.

        Args:
            body: the type of the body, a model of pydantic or a `TypedDict`.
            others: further keys.
        """
        is_model = issubclass(body, BaseModel)
        keys = honoured(*(body.model_fields if is_model else body.__annotations__))
        for each in others:
            keys |= each
        return cls(keys)

    def check(self, http_request: HttpRequest) -> HttpRequest:
        """Check that a body asks for nothing that the route cannot do.

        Returns:
            The request, whose response lists the keys that no server defines.

        Raises:
            Unprocessable: with the first refused key that has an effect.
        """
        content = http_request.content
        if not isinstance(content, dict):
            return http_request
        self.check_values(content)
        unknown = [name for name in content if name not in self.keys]
        return http_request.with_response_headers(_listed(unknown)) if unknown else http_request

    def check_values(self, content: Mapping[str, Any]) -> None:
        """Check that no refused key has a value with an effect.

        Raises:
            Unprocessable: one has.
        """
        for name, value in content.items():
            key = self.keys.get(name)
            if key and key.treatment == "refused" and not _is_neutral(value, key):
                raise Unprocessable(f"{name} cannot be done by this server; {key.remedy}.")

    def named(self, treatment: Treatment) -> list[str]:
        """Return the names of the keys with a treatment."""
        return [name for name, key in self.keys.items() if key.treatment == treatment]


def honoured(*names: str) -> dict[str, Key]:
    """Return keys that are honoured."""
    return dict.fromkeys(names, Key("honoured"))


def ignored(*names: str) -> dict[str, Key]:
    """Return keys that have no effect."""
    return dict.fromkeys(names, Key("without effect"))


def refused(**neutral: Any) -> dict[str, Key]:
    """Return keys that are refused, from the values of each that change nothing."""
    return {
        name: Key("refused", values if isinstance(values, list) else [values])
        for name, values in neutral.items()
    }


def _is_neutral(value: Any, key: Key) -> bool:
    """Return whether a value changes nothing; 0 is a number of `logprobs`, not false."""
    if isinstance(value, dict):
        # Clients write the settings that they do not set as null.
        value = {name: each for name, each in value.items() if each is not None}
    if value is None or (value in EMPTY and not key.by_presence):
        return True
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in key.neutral
    )


def _listed(names: Sequence[str]) -> dict[str, str]:
    return {UNKNOWN_KEYS: enumerate_names(names, limit=MAX_SHOWN, width=MAX_CHARACTERS)}
