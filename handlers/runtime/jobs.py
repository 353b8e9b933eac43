"""One request in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handlers.batching.rows import Outputs
from handlers.batching.tokenization import Window
from handlers.schemas.explanation_parameters import ExplanationParameters
from handlers.schemas.request import TextStream

DEFAULTS = ExplanationParameters()


@dataclass(frozen=True)
class Job:
    """A query, the settings of its explanation, its rows and their outputs.

    `stream` sends a generated text before it is complete.
    """

    query: Any
    settings: ExplanationParameters = DEFAULTS
    rows: Sequence[Window] = ()
    outputs: Sequence[Outputs] = ()
    stream: TextStream | None = None

    @property
    def streaming_started(self) -> bool:
        """Whether a part of its result was sent, so that it cannot run again."""
        return self.stream is not None and bool(self.stream.emitted)
