"""One row of token ids and the model outputs for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Outputs = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """The model inputs of one row: lists of equal length by input name, without attention mask."""

    features: Mapping[str, list[int]]

    def __len__(self) -> int:
        return len(self.features["input_ids"])
