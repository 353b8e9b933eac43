"""One request on its way through the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handlers.explanation_parameters import ExplanationParameters
from handlers.listener import Listener
from handlers.rows import Outputs
from handlers.windows import Window

USUAL = ExplanationParameters()


@dataclass(frozen=True)
class Case:
    """A query, how it is to be explained if at all, its rows and what came out for them.

    `listener` hears its text while it is made.
    """

    query: Any
    settings: ExplanationParameters = USUAL
    rows: Sequence[Window] = ()
    outputs: Sequence[Outputs] = ()
    listener: Listener | None = None

    @property
    def begun(self) -> bool:
        """Whether a part of its answer was told already, so that it cannot be made anew."""
        return self.listener is not None and bool(self.listener.heard)
