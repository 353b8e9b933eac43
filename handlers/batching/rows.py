"""One row of token ids and the model outputs for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handlers.errors import RequestError

Outputs = Mapping[str, Any]
# What a row has after it ran: its outputs, or why its forward pass did not run.
RowOutcome = Outputs | RequestError


@dataclass(frozen=True)
class Row:
    """The model inputs of one row: lists of equal length by input name, without attention mask."""

    features: Mapping[str, list[int]]

    def __len__(self) -> int:
        return len(self.features["input_ids"])


def require_outputs(outcomes: Sequence[RowOutcome]) -> list[Outputs]:
    """Return the outputs of rows that all ran.

    Raises:
        RequestError: the first error of a row that did not.
    """
    outputs: list[Outputs] = []
    for outcome in outcomes:
        if isinstance(outcome, RequestError):
            raise outcome
        outputs.append(outcome)
    return outputs
