"""Running a model over rows, to measure it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from demo_models.batches import Feature, chunks, collate, length
from demo_models.score import mean

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
