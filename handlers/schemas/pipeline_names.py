"""Parameters of transformers' pipelines that callers set beside a mode's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from handlers.errors import BadRequest, Unprocessable
from handlers.schemas.text_checks import json_type

ANY = None
# A text that is too long is truncated, unless the YAML says otherwise.
TRUNCATED = (True, "longest_first")


@dataclass(frozen=True)
class PipelineNames:
    """The names that a mode accepts.

    Attributes:
        ignored: names that change nothing, and the values that are ignored, or ANY.
        switches: names that are true or false, and the parameters that true stands for.
    """

    ignored: Mapping[str, Collection[Any] | None] = field(default_factory=dict)
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mode's parameters; those under their own names take precedence.

        Raises:
            BadRequest: a switch is neither true nor false.
            Unprocessable: another value of an ignored name.
        """
        own = {name: value for name, value in given.items() if name not in self}
        for name in given.keys() & self.ignored.keys():
            self._check_ignored(name, given[name])
        for name in given.keys() & self.switches.keys():
            own = {**self._switched(name, given[name]), **own}
        return own

    def __contains__(self, name: object) -> bool:
        return name in self.ignored or name in self.switches

    def _check_ignored(self, name: str, value: Any) -> None:
        known = self.ignored[name]
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
