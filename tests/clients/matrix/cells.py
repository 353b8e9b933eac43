"""The cells of the matrix: a text, a stream, an object of a schema, a loop of two tools, a refusal.

A program has the URL of each protocol and the prompt of each cell, and prints what its library
returns. The tools note their calls.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from pydantic import BaseModel

AnimalKind = Literal["fox", "bear"]
PlaceKind = Literal["river", "forest"]
CALLED: list[str] = []
# What every server of these protocols refuses.
TOO_HOT = 9.0
MAX_TOKENS = 200


class Animal(BaseModel):
    """An animal."""

    kind: AnimalKind


class Client(Protocol):
    """A library with one protocol."""

    def text(self, prompt: str) -> str | None:
        """Return the answer to a prompt."""

    def stream(self, prompt: str) -> Iterable[str | None]:
        """Return the parts of an answer."""

    def schema(self, prompt: str) -> Animal:
        """Return an object of a schema."""

    def loop(self, prompt: str) -> str | None:
        """Let the model call tools; return the answer from their results."""

    def refused(self, prompt: str) -> Any:
        """Send a request that is refused."""


def animal(kind: AnimalKind) -> str:
    """Look an animal up.

    Args:
        kind: Which one.
    """
    CALLED.append("animal")
    return f"seen {kind}"


def place(kind: PlaceKind) -> str:
    """Look a place up.

    Args:
        kind: Which one.
    """
    CALLED.append("place")
    return f"seen {kind}"


TOOLS: dict[str, Callable[..., str]] = {"animal": animal, "place": place}


def parameters_of(kinds: list[str]) -> dict[str, Any]:
    """Return the schema of the parameters of a tool."""
    return {
        "type": "object",
        "properties": {"kind": {"enum": kinds}},
        "required": ["kind"],
        "additionalProperties": False,
    }


PARAMETERS = {
    "animal": parameters_of(["fox", "bear"]),
    "place": parameters_of(["river", "forest"]),
}


def call(name: str, arguments: str | Mapping[str, Any]) -> str:
    """Return the result of a call of a tool."""
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return TOOLS[name](**given)


def calling(prompt: str, tool: str) -> str:
    """Return a prompt to which the model of the matrix calls a tool."""
    return f"{prompt} Call {tool}."


def main(clients: Mapping[str, Callable[[str], Client]]) -> None:
    """Print what each cell of each protocol returns."""
    job = json.load(sys.stdin)
    found = {
        protocol: cells_of(clients[protocol](url), job["prompts"])
        for protocol, url in job["urls"].items()
    }
    print(json.dumps(found))  # noqa: T201


def cells_of(client: Client, prompts: Mapping[str, str]) -> dict[str, Any]:
    """Return what each cell of a client returns."""
    CALLED.clear()
    cells: dict[str, Callable[[], Any]] = {
        "text": lambda: client.text(prompts["text"]),
        "stream": lambda: "".join(part or "" for part in client.stream(prompts["text"])),
        "schema": lambda: client.schema(prompts["schema"]).kind,
        "loop": lambda: [client.loop(prompts["loop"]), *CALLED],
        "refusal": lambda: str(client.refused(prompts["text"])),
    }
    return {name: tried(cell) for name, cell in cells.items()}


def tried(cell: Callable[[], Any]) -> dict[str, Any]:
    """Return what a cell returns, or its error, so that the other cells run too."""
    try:
        return {"value": cell()}
    except Exception as error:  # noqa: BLE001
        package, name = type(error).__module__.partition(".")[0], type(error).__name__
        place = "".join(traceback.format_tb(error.__traceback__))[-2000:]
        return {"class": f"{package}.{name}", "message": str(error), "place": place}
