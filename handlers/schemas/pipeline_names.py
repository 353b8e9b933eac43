"""Names that callers of transformers' pipelines set beside a mode's own parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from handlers.errors import BadRequest, Unprocessable
from handlers.schemas.text_checks import json_type

ANY = None
# What is done with a text that is too long, unless the YAML says otherwise.
TRUNCATED = (True, "longest_first")


@dataclass(frozen=True)
class PipelineNames:
    """What a mode makes of them.

    Attributes:
        idle: names that change nothing here, and the values for which that is so, or ANY.
        switches: names that are true or false, and the parameters that are meant by true.
    """

    idle: Mapping[str, Collection[Any] | None] = field(default_factory=dict)
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def meant_by(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that are meant; those that are given by their own name stand.

        Raises:
            BadRequest: a switch is neither true nor false.
            Unprocessable: another value of an idle name.
        """
        own = {name: value for name, value in given.items() if name not in self}
        for name in given.keys() & self.idle.keys():
            self._check_idle(name, given[name])
        for name in given.keys() & self.switches.keys():
            own = {**self._switched(name, given[name]), **own}
        return own

    def __contains__(self, name: object) -> bool:
        return name in self.idle or name in self.switches

    def _check_idle(self, name: str, value: Any) -> None:
        known = self.idle[name]
        if known is not ANY and value not in (None, [], *known):
            raise Unprocessable(f"{name} cannot be done by this server; leave it out.")

    def _switched(self, name: str, value: Any) -> Mapping[str, Any]:
        if value is not None and not isinstance(value, bool):
            raise BadRequest(
                f"parameters: {name} must be true or false, and is {json_type(value)}."
            )
        return self.switches[name] if value else {}


def in_lower_case(value: Any) -> Any:
    """Return a word in lower case, as the pipelines read it; other values as they are."""
    return value.lower() if isinstance(value, str) else value
