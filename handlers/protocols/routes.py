"""The routes of protocols: paths below the path of a model, as OpenAPI documents describe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handlers.http.response import JSON
from handlers.http.streams import Stream
from handlers.protocols.keys import KeyTable
from handlers.types.model_info import Ability

# Bodies by name, from the sample request of a mode.
Examples = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Route:
    """A path below the path of a model, with the types of its requests and responses.

    Attributes:
        path: the path after `/predictions/<model>/<version>/`.
        name: the id of the operation, for generated clients.
        server: the server or API that defines it.
        summary: what it does.
        response: the type of a response in JSON; None where there is none.
        error: the type of an error.
        abilities: what a model must do, one of them; none for any model.
        body: the type of a request's body; None for a GET.
        keys: the keys of the body.
        examples: returns bodies.
        description: further text.
        stream: the format of a response in parts; None where there is none.
        part: the type of a part.
        body_types: the content types of a body.
        other_types: the content types of other responses, each with `str` or `bytes`.
        other_statuses: the statuses of errors that other protocols do not have, and their meaning.
    """

    path: str
    name: str
    server: str
    summary: str
    response: Any
    error: Any
    abilities: tuple[Ability, ...] = ()
    body: Any = None
    keys: KeyTable = field(default_factory=KeyTable)
    examples: Examples = lambda _: {}
    description: str = ""
    stream: Stream | None = None
    part: Any = None
    body_types: Sequence[str] = (JSON,)
    other_types: Mapping[str, type] = field(default_factory=dict)
    other_statuses: Mapping[int, str] = field(default_factory=dict)
