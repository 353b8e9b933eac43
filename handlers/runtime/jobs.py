"""One request on its way through the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handlers.batching.rows import Outputs
from handlers.batching.tokenization import Window
from handlers.schemas.explanation_parameters import ExplanationParameters
from handlers.schemas.text_stream import TextStream

USUAL = ExplanationParameters()


@dataclass(frozen=True)
class Job:
    """A query, how it is to be explained if at all, its rows and what came out for them.

    `listener` hears its text while it is made.
    """

    query: Any
    settings: ExplanationParameters = USUAL
    rows: Sequence[Window] = ()
    outputs: Sequence[Outputs] = ()
    stream: TextStream | None = None

    @property
    def streaming_started(self) -> bool:
        """Whether a part of its answer was told already, so that it cannot be made anew."""
        return self.stream is not None and bool(self.stream.emitted)
