"""One request on its way through the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handlers.explanation_parameters import ExplanationParameters
from handlers.rows import Outputs
from handlers.windows import Window

USUAL = ExplanationParameters()


@dataclass(frozen=True)
class Case:
    """A query, how it is to be explained if at all, its rows and what came out for them."""

    query: Any
    settings: ExplanationParameters = USUAL
    rows: Sequence[Window] = ()
    outputs: Sequence[Outputs] = ()
