"""One row of model inputs, such as token ids, and the model outputs for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal, TypeVar

import numpy as np

from ..errors import NotFinite, RequestError

Outputs = Mapping[str, Any]
# The feature of a row that has the number of its LoRA adapter for each token, 0 for none.
ADAPTER_IDS = "adapter_ids"
# Rows of tokens are padded or packed; arrays of equal shapes are stacked.
RowKind = Literal["tokens", "arrays"]
# What a row has after it ran: its outputs, or why its forward pass did not run.
RowOutcome = Outputs | RequestError


class BaseRow(ABC):
    """The model inputs of one row, by name, and what they cost to compute."""

    features: Mapping[str, Any]

    @property
    def sequences(self) -> int:
        """The number of sequences that are computed for it."""
        return 1

    @property
    def tokens(self) -> int:
        """The number of tokens that the model reads; 0 for other rows."""
        return 0

    @property
    @abstractmethod
    def cost(self) -> int:
        """What is computed for it, in the unit of a task's budget, such as tokens or pixels."""


@dataclass(frozen=True)
class Row(BaseRow):
    """The model inputs of one row: lists of equal length by input name, without attention mask.

    A token has one number in most inputs, and a list of them in others.
    """

    features: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.features["input_ids"])

    @property
    def tokens(self) -> int:
        return len(self)

    @property
    def cost(self) -> int:
        """The number of tokens that are computed for it, in all its sequences."""
        return len(self)


RowT = TypeVar("RowT", bound=Row)
# Rows that begin with fewer equal tokens are computed whole.
MIN_SHARED = 16


def shared_tokens(rows: Sequence[Row]) -> int:
    """Return how many tokens all rows begin with; at least one of each is not among them."""
    ids = [row.features["input_ids"] for row in rows]
    columns = zip(*(own[:-1] for own in ids), strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def after(row: RowT, shared: int) -> RowT:
    """Return a row without its first tokens."""
    features = {name: values[shared:] for name, values in row.features.items()}
    return replace(row, features=features)


# Returns what is kept of a row's outputs after the forward pass.
Postprocess = Callable[[Any, Outputs], Outputs]


def unprocessed(row: BaseRow, outputs: Outputs) -> Outputs:
    """Return all outputs of a row."""
    return outputs


@dataclass(frozen=True)
class TrialRows:
    """The rows of a trial.

    Attributes:
        batches: rows that run together. The first has short rows, first and last of equal length.
            Where the config names windows, a second has a row that is longer than those windows.
        limit: the longest row for which the trial is evidence. It is infinite unless the config
            names a window that no row of the trial exceeds.
    """

    batches: Sequence[Sequence[Row]]
    limit: float


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


def check_numbers(outputs: Sequence[Outputs]) -> None:
    """Check that a model has computed numbers, which overflow in some dtypes for some texts.

    Negative infinity is the logit of what is impossible.

    Raises:
        NotFinite: one is NaN or infinity.
    """
    for row in outputs:
        for array in row.values():
            is_float = isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.size
            # The maximum is NaN where one value is.
            if is_float and not (np.max(array) < np.inf):
                raise NotFinite(
                    "The model computes no finite numbers for this text; send another one, or set"
                    " dtype: float32 in the YAML of the model."
                )


def outputs_agree(
    found: Sequence[Outputs], expected: Sequence[Outputs], names: Iterable[str], *, exact: bool
) -> bool:
    """Return whether outputs differ by no more than rounding.

    The tolerance is relative to the largest expected value of an output, or to 1 if that is less: a
    relative tolerance for each value would be too strict for values near zero.

    Args:
        exact: whether they were computed in float32, and not in a dtype with fewer bits.
    """
    tolerance = 1e-3 if exact else 1e-1
    for name in names:
        actual, reference = (
            np.concatenate([np.ravel(row[name]) for row in rows]) for rows in (found, expected)
        )
        # `difference > ...` would be false for NaN.
        if not np.abs(actual - reference).max() <= tolerance * max(1.0, np.abs(reference).max()):
            return False
    return True
