"""Running a model over rows, to measure it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from demo_models.training import Feature, chunks, collate, length

ROWS = 16


@torch.inference_mode()
def forward(model: PreTrainedModel, features: list[Feature]) -> list[dict[str, Tensor]]:
    """Return each row's outputs by name, in the order of the rows.

    Outputs for each token include those for the padding after the tokens of the row.
    """
    results: dict[int, dict[str, Tensor]] = {}
    for rows in chunks(sorted(range(len(features)), key=lambda row: length(features[row])), ROWS):
        pad_id = getattr(model.config, "pad_token_id", None)
        batch = collate([features[row] for row in rows], pad_id)
        output = model(**to_device(batch, model.device))
        for place, row in enumerate(rows):
            results[row] = {name: values[place].cpu() for name, values in output.items()}
    return [results[row] for row in range(len(features))]


def accuracy(model: PreTrainedModel, features: list[Feature]) -> float:
    """Return the share of rows whose highest logit is that of their label."""
    labels = [row.pop("labels") for row in features]
    pairs = zip(forward(model, features), labels, strict=True)
    return mean(int(out["logits"].argmax()) == label for out, label in pairs)


def to_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return a batch with its tensors on a device; the boxes of images stay where they are."""
    return {
        name: each.to(device) if isinstance(each, Tensor) else each for name, each in batch.items()
    }


FILE = "score.json"


@dataclass(frozen=True)
class Score:
    """The measures of one model, each with its name, and on how many held-out rows."""

    mode: str
    seed: int
    rows: int
    measures: dict[str, float]

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.3g}" for name, value in self.measures.items())

    def write(self, folder: Path) -> None:
        """Write the score into the folder of a checkpoint."""
        text = json.dumps(asdict(self), indent=2)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Score | None:
        """Return the score in the folder of a checkpoint; None if there is none."""
        path = folder / FILE
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def mean(values: Iterable[float]) -> float:
    """Return the mean; of truth values it is the share of the true ones."""
    return fmean(map(float, values))


def f1(found: Sequence[Sequence[Hashable]], expected: Sequence[Sequence[Hashable]]) -> float:
    """Return the F1 of all rows' items together; only equal items count as found."""
    pairs = [(Counter(row), Counter(truth)) for row, truth in zip(found, expected, strict=True)]
    common = sum((row & truth).total() for row, truth in pairs)
    total = sum(row.total() + truth.total() for row, truth in pairs)
    return 2 * common / total if total else 1.0
