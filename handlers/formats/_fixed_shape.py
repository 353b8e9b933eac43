"""Any batch on a model that takes one shape only."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn.functional import pad

from handlers.batching.tokenization import check_length
from handlers.export.manifest import Shape
from handlers.runtime.model import ForwardOnlyModel, Model


class FixedShapeModel(ForwardOnlyModel):
    """A model of one shape that takes any number of rows, none longer than its width.

    Rows are filled up at the right, also where the tokenizer pads at the left, so no token's
    position changes. Rows that are missing are copies of the last real one: a row without any
    token would be not-a-number in many attention kernels.
    """

    def __init__(self, model: Model, shape: Shape, pad_ids: Mapping[str, int]) -> None:
        self._model, self._shape, self._pad_ids = model, shape, pad_ids

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        rows, width = batch["input_ids"].shape
        check_length(width, self._shape.width, "a row")
        runs = [self._model.forward(part) for part in self._parts(batch)]
        whole = {name: torch.cat([run[name] for run in runs])[:rows] for name in runs[0]}
        return {
            name: output[:, :width] if name in self._shape.per_token else output
            for name, output in whole.items()
        }

    def _parts(self, batch: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        rows, width = batch["input_ids"].shape
        count = -(-rows // self._shape.rows)
        order = torch.arange(count * self._shape.rows).clamp(max=rows - 1)
        missing = (0, self._shape.width - width)
        full = {
            name: pad(tensor.cpu(), missing, value=self._pad_ids.get(name, 0))[order]
            for name, tensor in batch.items()
        }
        return [
            {name: tensor[order] for name, tensor in full.items()}
            for order in torch.arange(len(order)).split(self._shape.rows)
        ]
