"""A step of a benchmark with one contender, whose failure ends that contender alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from hf_serve.handlers.errors import KitError


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class _Participant(Protocol):
    failure: str | None

    @property
    def contender(self) -> _Named: ...


ParticipantT = TypeVar("ParticipantT", bound=_Participant)


def run_step(
    entry: ParticipantT,
    step: str,
    do: Callable[[ParticipantT], object],
    report: Callable[[str], None],
) -> None:
    """Run a step unless the contender has failed; record a failure of the step."""
    if entry.failure:
        return
    report(f"{entry.contender.name}: {step}")
    try:
        do(entry)
    except KitError as error:
        entry.failure = str(error)
        report(f"{entry.contender.name} failed: {error}")
